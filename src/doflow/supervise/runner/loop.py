"""The runner of one node: starts its orchestrator, watches the pane, reports to the guardian and acts on its replies.
Its state is on disk: after a kill the next runner takes over."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from doflow.supervise import judge, ownership, pipeline_context
from doflow.supervise.panes import agent_pane, programs, screen
from doflow.supervise.panes.agent_pane import AgentPane
from doflow.supervise.panes.screen import ScreenReading
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.orchestrator import Assignment
from doflow.supervise.signal_store import Signal
from doflow.supervise.signal_watch import FolderWatch
from doflow.util import atomic_files

QUIET = 3.0  # seconds that a plain question must stay on the screen before it counts
TAIL = 4000
ATTEMPT_MARK = "attempt {} starts now"
#: the memory of a new attempt
NEW_ATTEMPT: dict[str, object] = {"reviewing": "", "waiting": "", "stucks": 0, "violations": 0}
_ALIASES = {"Update": "Edit", "Create": "Write"}


class Runner:
    """One runner process."""

    def __init__(self, context: PipelineContext, work: Assignment, environ: Mapping[str, str], check: float) -> None:
        self.context, self.environ, self.check = context, environ, check
        self.work, self.node = work, work.node
        self.memory = pipeline_context.load(context.node(self.node, "runner.json"))
        self.pane: AgentPane = orchestrator.pane_at(context, self.node, self.memory.get("seat", 0))
        self.progress, self.since = "", time.monotonic()
        self.errors: set[str] = set()

    def run(self) -> int:
        """Until the guardian ends it; 0 = done, 1 = its state was removed."""
        lock = self.context.node(self.node, "runner.lock")
        shared = ownership.lock_for_guardian(self.context.root, self.context.dot)
        with pipeline_context.held(lock, f"a runner is working on {self.node}"), shared:
            self.context.store.prepare()
            self.context.note("runner", "runner_started", node=self.node, attempt=self.work.attempt, pid=os.getpid())
            with FolderWatch([self.context.store.folder]) as watch:
                self.take_over()
                while not self.handle_replies():
                    if not os.path.exists(lock):  # the project or this node's state was removed
                        self.pane.end()
                        return 1
                    self.observe()
                    watch.add(os.path.join(self.pane.folder, programs.EVENTS))
                    watch.sleep(self.check)
            self.context.note("runner", "runner_ended", node=self.node, attempt=self.work.attempt)
        return 0

    def take_over(self) -> None:
        """Take over the pane of an earlier runner, send a running orchestrator the feedback, or start one."""
        before = self.memory.get("attempt", 0)
        if before >= self.work.attempt:
            self.work = replace(self.work, attempt=before)
            if self.pane.state() != agent_pane.NEW:
                if not self._open_question():
                    self.remember(waiting="")  # it died before it asked: the question is still on the screen
                return
        elif before and not self.work.fresh and self.pane.state() == agent_pane.RUNNING:
            self.feed_back(self.work.feedback, self.work.attempt)
            return
        self.start_pane(self.work)

    def start_pane(self, work: Assignment) -> None:
        """Start the orchestrator in a new folder, so that files of an earlier start are never mistaken for its own."""
        if self.memory.get("seat") and os.path.isdir(self.pane.folder):
            self.pane.end()
            self.memory["seat"] += 1
        self.work = work
        self.remember(**NEW_ATTEMPT, attempt=work.attempt, seat=self.memory.get("seat") or 1, turns=0, dones=0, edits=0)
        self.pane = orchestrator.spawn(self.context, work, self.memory["seat"], self.environ)
        self.since = time.monotonic()

    def feed_back(self, text: str, attempt: int) -> None:
        """Send feedback to the running orchestrator; start a new one if it has ended."""
        work = replace(self.work, attempt=attempt, feedback=text)
        if self.pane.state() != agent_pane.RUNNING:
            self.start_pane(work)
            return
        self.work = work
        dones = screen.read_screen(self.pane.screen(2000)).done
        words = f"Not accepted yet; {ATTEMPT_MARK.format(attempt)}. Feedback:\n\n{text}\n\nFix it and finish as before."
        self.context.tmux.type(self.pane.session, words)
        self.remember(**NEW_ATTEMPT, attempt=attempt, dones=dones, turns=len(self.pane.events("Stop")))
        self.since = time.monotonic()

    def handle_replies(self) -> bool:
        """Handle the guardian's signals, oldest first, then file them; True = this runner is done."""
        for signal in self.context.store.waiting(target="runner", node=self.node):
            stale = bool(signal.attempt) and signal.attempt != self.work.attempt
            ended = not stale and self._handle_reply(signal)
            self.context.store.consume(signal)
            self.context.note("runner", "heard", node=self.node, signal=signal.kind, id=signal.unique, stale=stale)
            if ended:
                return True
        return False

    def _handle_reply(self, signal: Signal) -> bool:
        """Type feedback, answer a question, end the session; True = this runner is done."""
        kind, payload = signal.kind, signal.payload
        if kind == "VALIDATION_PASSED":
            self._complete()
        elif kind == "VALIDATION_FAILED":
            self.feed_back(payload["feedback"], self.work.attempt + 1)
        elif kind == "INPUT_RESPONSE":
            if not signal.reply or signal.reply in self._open_question():
                self._respond(payload["response_text"])
        elif kind == "GUIDANCE" and self.pane.state() == agent_pane.RUNNING:
            self.context.tmux.type(self.pane.session, payload["message"])
            self.since = time.monotonic()
        ended = kind in ("VALIDATION_PASSED", "KILL_ORCHESTRATOR")
        if ended:
            self.pane.end()
        return ended

    def _complete(self) -> None:
        turns = self.pane.events("Stop")
        message = str(turns[-1][1].get("last_assistant_message", "")) if turns else ""
        summary, commit = message[-2000:] or f"{self.node} is validated", orchestrator.head_commit(self.work.cwd)
        self.send("NODE_COMPLETE", f"complete.{self.node}.{self.work.attempt}", commit_hash=commit, summary=summary)

    def _respond(self, text: str) -> None:
        """Type the answer; one that matches no option is asked for again, never guessed."""
        if self.pane.state() != agent_pane.RUNNING:
            return
        reading = screen.read_screen(self.pane.screen(60))
        if self.memory.get("waiting") and self._answered_by_hand(reading):
            return  # or by a runner that died
        typed = agent_pane.type_answer(self.pane, text)
        self._close_question()
        if not typed:
            question = f"{text!r} {agent_pane.NOT_AN_OPTION} {reading.question}"
            self.needs_input(question, reading.options, shown=reading.question)

    def observe(self) -> None:
        """Check the orchestrator, and signal the guardian if needed."""
        if self.memory.get("reviewing"):
            return
        state = self.pane.state()
        if state == agent_pane.RUNNING:
            if not (self._check_turns() or self._check_tools()):
                self._check_screen()
        elif state == agent_pane.ENDED and self.pane.exit_code() == 0:
            self.turn_over(f"exit.{self.memory['seat']}", "")
        elif state in (agent_pane.ENDED, agent_pane.GONE):
            last, code = self.pane.screen()[-TAIL:], self.pane.exit_code()
            token = f"crash.{self.node}.{self.work.attempt}.{self.memory['seat']}"
            self.send("ORCHESTRATOR_CRASHED", token, last_output=last, exit_code=code)
        else:
            self.start_pane(self.work)  # an earlier runner died before the start

    def _check_turns(self) -> bool:
        turns = self.pane.events("Stop")
        if len(turns) <= self.memory.get("turns", 0):
            return False
        name, record = turns[-1]
        if record.get("background_tasks"):
            return False  # its workers are still running and will wake it
        self.turn_over(name, str(record.get("last_assistant_message") or ""))
        self.remember(turns=len(turns))  # last: after a crash the turn is reported again
        return True

    def _check_tools(self) -> bool:
        """Direct edits by the orchestrator where only its workers may edit."""
        if not self.work.forbid:
            return False
        records = [record for _, record in self.pane.events("PreToolUse") if not record.get("agent_id")]
        used = [_shown_use(record) for record in records if record.get("tool_name") in self.work.forbid]
        if len(used) <= self.memory.get("edits", 0):
            return False
        self.violation(used[-1])
        self.remember(edits=len(used))
        return True

    def _check_screen(self) -> None:
        text = self.pane.screen()
        reading = screen.read_screen(text)
        if reading.progress != self.progress:
            self.progress, self.since = reading.progress, time.monotonic()
        quiet = time.monotonic() - self.since
        self._keep_health(reading)
        if self.memory.get("waiting") and not self._answered_by_hand(reading):
            return
        if reading.question and (not reading.waits or quiet >= QUIET):
            self.needs_input(reading.question, reading.options)
        elif reading.done and self._said_done():
            self.turn_over(f"done.{self.memory['seat']}.{self.work.attempt}", "")
        elif self._edited_on_screen(reading):
            self.violation(reading.edit)
            self.remember(edit=reading.edit)
        elif reading.repeated and reading.error not in self.errors:
            self.errors.add(reading.error)
            self.stuck(text, quiet)
        elif quiet >= self.work.stuck:
            self.since = time.monotonic()
            self.stuck(text, quiet)

    def _said_done(self) -> bool:
        """The end marker below the last feedback; if that was never shown, more markers than before (screens scroll)."""
        text, mark = self.pane.screen(2000), ATTEMPT_MARK.format(self.work.attempt)
        if mark in text and self.memory.get("shown") != self.work.attempt:
            self.remember(shown=self.work.attempt)
        if self.memory.get("shown") == self.work.attempt:
            return screen.read_screen(text.rpartition(mark)[2]).done > 0
        return bool(screen.read_screen(text).done > self.memory.get("dones", 0))

    def _edited_on_screen(self, reading: ScreenReading) -> bool:
        """For programs without hooks only: hooks report edits themselves."""
        tool = reading.edit.partition("(")[0]
        forbidden = bool(reading.edit) and _ALIASES.get(tool, tool) in self.work.forbid
        return forbidden and reading.edit != self.memory.get("edit") and not self.pane.events()

    def turn_over(self, turn: str, message: str) -> None:
        """A turn has ended: with a question, or with work to review."""
        question = judge.closing_question(self.context, self.work.judge, self.node, turn, message)
        if question:
            self.needs_input(question, (), turn)
            return
        text = self.pane.screen(2000)
        self._keep_health(screen.read_screen(text))
        path = self.context.node(self.node, f"evidence-{self.work.attempt}.txt")
        atomic_files.write_file(path, f"{message}\n\n{text}\n".encode("utf-8", "replace"))
        answer = message.strip() or screen.final_report(text.rpartition(ATTEMPT_MARK.format(self.work.attempt))[2])
        kept = self.context.node(self.node, f"answer-{self.work.attempt}.txt")
        atomic_files.write_file(kept, f"{answer}\n".encode("utf-8", "replace"))
        commit = orchestrator.head_commit(self.work.cwd)
        self.send("NEEDS_REVIEW", f"review.{self.node}.{self.work.attempt}", evidence_path=path, commit_hash=commit)
        self.remember(reviewing=str(self.work.attempt))

    def needs_input(self, question: str, options: tuple[str, ...], turn: str = "", shown: str = "") -> None:
        token = f"input.{self.node}.{self.work.attempt}.{self.memory.get('inputs', 0)}"
        # remembered first: the answer may come at once
        self.remember(waiting=token, question=shown or question, by_screen=not turn)
        self.send("NEEDS_INPUT", token, question_text=question, options=list(options))

    def _open_question(self) -> str:
        """The signal file of the open question; '' = none."""
        token = self.memory.get("waiting")
        return os.path.basename(self.context.store.find_reply(token, "NEEDS_INPUT")) if token else ""

    def _answered_by_hand(self, reading: ScreenReading) -> bool:
        """Did a person answer in the session? The question is no longer on the screen."""
        if not self.memory.get("by_screen") or reading.question == self.memory.get("question"):
            return False
        self._close_question()
        return True

    def _close_question(self) -> None:
        self.remember(waiting="", question="", inputs=self.memory.get("inputs", 0) + 1)
        self.since = time.monotonic()

    def violation(self, evidence: str) -> None:
        count = self.memory.get("violations", 0) + 1
        token = f"violation.{self.node}.{self.work.attempt}.{count}"
        self.send("VIOLATION", token, violation_type="direct_edit", evidence=evidence)
        self.remember(violations=count)

    def stuck(self, text: str, quiet: float) -> None:
        count = self.memory.get("stucks", 0) + 1
        token = f"stuck.{self.node}.{self.work.attempt}.{count}"
        self.send("ORCHESTRATOR_STUCK", token, last_output=text[-TAIL:], duration_seconds=round(quiet, 1))
        self.remember(stucks=count)

    def send(self, kind: str, token: str, **payload: Any) -> None:
        """Send a signal once, also across restarts."""
        signal = Signal(kind, {"node_id": self.node, **payload}, reply=token, attempt=self.work.attempt)
        sent = self.context.store.write_once(signal)
        if sent is not None:
            self.context.note("runner", "signalled", node=self.node, signal=kind, id=sent.unique)

    def remember(self, **more: object) -> None:
        self.memory |= more
        pipeline_context.save(self.context.node(self.node, "runner.json"), self.memory)

    def _keep_health(self, reading: ScreenReading) -> None:
        """Save tokens and context left, when they change."""
        health = {"context_left": reading.context_left, "tokens": reading.tokens, **agent_pane.token_usage(self.pane)}
        if health != self.memory.get("health"):
            self.remember(health=health)


def start(context: PipelineContext, node: str, environ: Mapping[str, str], check: float = 1.0) -> int:
    """Run the runner of a node, with the assignment that the guardian saved."""
    found = orchestrator.assignment_from_dict(pipeline_context.load(context.node(node, "node.json"))["assignment"])
    return Runner(context, found, environ, check).run()


def _shown_use(record: Mapping[str, Any]) -> str:
    """The tool of a PreToolUse event, and the file that it edits."""
    given = record.get("tool_input")
    edited = given.get("file_path") or given.get("notebook_path") or "" if isinstance(given, dict) else given
    return f"{record.get('tool_name')}({str(edited)[:200]})"
