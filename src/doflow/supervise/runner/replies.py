"""How a runner handles the guardian's signals: type feedback, answer questions, end the session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from doflow.supervise.panes import agent_pane, screen
from doflow.supervise.panes.agent_pane import AgentPane
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.orchestrator import Assignment
from doflow.supervise.signal_store import Signal

REDRAW = 3.0  # seconds for a program to remove a menu from its screen
_FREE = ("type something", "other", "something else", "no, and tell")


class Runner(Protocol):
    """What is needed of a runner here."""

    context: PipelineContext
    node: str
    work: Assignment
    pane: AgentPane
    memory: dict[str, Any]
    since: float

    def send(self, kind: str, payload: Mapping[str, Any], token: str) -> str: ...

    def feed_back(self, text: str, attempt: int) -> None: ...

    def needs_input(self, question: str, options: tuple[str, ...], turn: str = "", shown: str = "") -> None: ...

    def asked(self) -> str: ...

    def answered(self) -> None: ...


def handle_reply(runner: Runner, signal: Signal) -> bool:
    """Handle a signal; True = the runner is done."""
    payload = signal.payload
    if signal.kind == "VALIDATION_PASSED":
        return _passed(runner)
    if signal.kind == "KILL_ORCHESTRATOR":
        runner.pane.end()
        return True
    if signal.kind == "VALIDATION_FAILED":
        runner.feed_back(payload["feedback"], runner.work.attempt + 1)
    elif signal.kind == "INPUT_RESPONSE":
        if not signal.reply or signal.reply in runner.asked():
            _respond(runner, payload["response_text"])
    elif runner.pane.state() == agent_pane.RUNNING:  # GUIDANCE
        runner.context.tmux.type(runner.pane.session, payload["message"])
        runner.since = time.monotonic()
    return False


def _passed(runner: Runner) -> bool:
    """The node is validated: signal completion and end the orchestrator."""
    turns = runner.pane.events("Stop")
    summary = str(turns[-1][1].get("last_assistant_message", "")) if turns else ""
    payload = {
        "node_id": runner.node, "commit_hash": orchestrator.head_commit(runner.work.cwd),
        "summary": summary[-2000:] or f"{runner.node} is validated",
    }  # fmt: skip
    runner.send("NODE_COMPLETE", payload, f"complete.{runner.node}.{runner.work.attempt}")
    runner.pane.end()
    return True


def _respond(runner: Runner, text: str) -> None:
    """Type the answer; one that matches no option is asked for again, never guessed."""
    if runner.pane.state() != agent_pane.RUNNING:
        return
    reading = screen.read_screen(runner.pane.screen(60))
    if (
        runner.memory.get("waiting")
        and runner.memory.get("by_screen")
        and reading.question != runner.memory["question"]
    ):
        runner.answered()  # already answered in the session, or by a runner that died
        return
    typed = type_answer(runner.pane, text)
    runner.answered()
    if not typed:
        runner.needs_input(
            f"{text!r} isn't one of the options. {reading.question}", reading.options, shown=reading.question
        )


def type_answer(pane: AgentPane, text: str) -> bool:
    """Choose an option by its number, type anything else; False = the menu has no such option."""
    reading = screen.read_screen(pane.screen(60))
    number = screen.match_choice(text, reading.options)
    free = next((number for number, said in enumerate(reading.options, 1) if said.casefold().startswith(_FREE)), 0)
    if not reading.menu:
        pane.tmux.type(pane.session, reading.options[number - 1] if number else text)
        return True
    if not number and not free:
        return False
    pane.tmux.press(pane.session, str(number or free))
    if not number:
        time.sleep(REDRAW / 4)
        pane.tmux.type(pane.session, text)
    elif not _gone(pane, reading.question):
        pane.tmux.press(pane.session, "Enter")
        _gone(pane, reading.question)
    return True


def _gone(pane: AgentPane, question: str) -> bool:
    """Wait until the menu is gone, so that a slow terminal doesn't get the answer twice."""
    until = time.monotonic() + REDRAW
    while time.monotonic() < until:
        if screen.read_screen(pane.screen(60)).question != question:
            return True
        time.sleep(0.1)
    return False
