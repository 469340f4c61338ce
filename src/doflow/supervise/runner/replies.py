"""What a runner does with each thing the guardian says: type it, choose it, end the session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from doflow.supervise.panes import agent_pane as seat, screen
from doflow.supervise.panes.agent_pane import Seat
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.assignment import Assignment
from doflow.supervise.signals.types import Signal
from doflow.supervise.workspace import Place

REDRAW = 3.0  # seconds that a program is given to take a choice off its screen
_FREE = ("type something", "other", "something else", "no, and tell")


class Runner(Protocol):
    """What is needed of a runner here."""

    place: Place
    node: str
    work: Assignment
    seat: Seat
    memory: dict[str, Any]
    since: float

    def send(self, kind: str, payload: Mapping[str, Any], token: str) -> str: ...

    def feed_back(self, text: str, attempt: int) -> None: ...

    def needs_input(self, question: str, options: tuple[str, ...], turn: str = "", shown: str = "") -> None: ...

    def asked(self) -> str: ...

    def answered(self) -> None: ...


def heed(runner: Runner, signal: Signal) -> bool:
    """Do it; True = the runner's work is over."""
    payload = signal.payload
    if signal.kind == "VALIDATION_PASSED":
        return _passed(runner)
    if signal.kind == "KILL_ORCHESTRATOR":
        runner.seat.end()
        return True
    if signal.kind == "VALIDATION_FAILED":
        runner.feed_back(payload["feedback"], runner.work.attempt + 1)
    elif signal.kind == "INPUT_RESPONSE":
        if not signal.reply or signal.reply in runner.asked():
            _respond(runner, payload["response_text"])
    elif runner.seat.state() == seat.RUNNING:  # GUIDANCE
        runner.place.tmux.type(runner.seat.session, payload["message"])
        runner.since = time.monotonic()
    return False


def _passed(runner: Runner) -> bool:
    """The node is done: say so, let the orchestrator go."""
    turns = runner.seat.events("Stop")
    summary = str(turns[-1][1].get("last_assistant_message", "")) if turns else ""
    payload = {
        "node_id": runner.node, "commit_hash": orchestrator.head(runner.work.cwd),
        "summary": summary[-2000:] or f"{runner.node} is validated",
    }  # fmt: skip
    runner.send("NODE_COMPLETE", payload, f"complete.{runner.node}.{runner.work.attempt}")
    runner.seat.end()
    return True


def _respond(runner: Runner, text: str) -> None:
    """What fits no option is asked for again, never guessed."""
    if runner.seat.state() != seat.RUNNING:
        return
    sight = screen.look(runner.seat.screen(60))
    if runner.memory.get("waiting") and runner.memory.get("by_screen") and sight.question != runner.memory["question"]:
        runner.answered()  # a person who attached was faster, or a runner that died before it could say so
        return
    typed = type_answer(runner.seat, text)
    runner.answered()
    if not typed:
        runner.needs_input(f"{text!r} is none of the options. {sight.question}", sight.options, shown=sight.question)


def type_answer(found: Seat, text: str) -> bool:
    """An option is chosen by its number, anything else is typed; False = a menu is there that has no such option."""
    sight = screen.look(found.screen(60))
    number = screen.choice(text, sight.options)
    free = next((place for place, said in enumerate(sight.options, 1) if said.casefold().startswith(_FREE)), 0)
    if not sight.menu:
        found.tmux.type(found.session, sight.options[number - 1] if number else text)
        return True
    if not number and not free:
        return False
    found.tmux.press(found.session, str(number or free))
    if not number:
        time.sleep(REDRAW / 4)
        found.tmux.type(found.session, text)
    elif not _gone(found, sight.question):
        found.tmux.press(found.session, "Enter")
        _gone(found, sight.question)
    return True


def _gone(found: Seat, question: str) -> bool:
    """Wait until the menu is off the screen: a slow terminal must not have the same question answered twice."""
    until = time.monotonic() + REDRAW
    while time.monotonic() < until:
        if screen.look(found.screen(60)).question != question:
            return True
        time.sleep(0.1)
    return False
