"""The runner of one node: starts its orchestrator, watches the pane, tells the guardian what it sees, passes on what the
guardian says. It keeps nothing in memory that it could not find again: kill it, and the next one goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from doflow.supervise import judge as judging, ownership as driver, workspace as places
from doflow.supervise.panes import agent_pane as seat, programs, screen
from doflow.supervise.panes.agent_pane import Seat
from doflow.supervise.panes.screen import Sight
from doflow.supervise.runner import assignment as assignments, orchestrator, replies as relay
from doflow.supervise.runner.assignment import Assignment
from doflow.supervise.signals.types import Signal
from doflow.supervise.signals.watch import Watch
from doflow.supervise.workspace import Place
from doflow.util import atomic_files as files
from doflow.util.records import replace

QUIET = 3.0  # seconds that a plain question must stand still before it counts
TAIL = 4000
AGAIN = "attempt {} begins now"
#: what a new attempt begins with
_ANEW: dict[str, object] = {"reviewing": "", "waiting": "", "stucks": 0, "violations": 0}
_ALIASES = {"Update": "Edit", "Create": "Write"}


class Runner:
    """One runner at work."""

    def __init__(self, place: Place, assignment: Assignment, environ: Mapping[str, str], check: float = 1.0) -> None:
        self.place = place
        self.work = assignment
        self.node = assignment.node
        self.environ = environ
        self.check = check
        self.memory = places.load(place.node(self.node, "runner.json"))
        self.seat: Seat = orchestrator.at(place, self.node, self.memory.get("seat", 0))
        self.progress, self.since = "", time.monotonic()
        self.errors: set[str] = set()

    def run(self) -> int:
        """Until the guardian lets the node go, or the orchestrator is beyond help; 0 = the node was handed over."""
        lock = self.place.node(self.node, "runner.lock")
        mine = driver.together(self.place.root, self.place.dot)
        with places.held(lock, f"a runner works on {self.node}"), mine:
            self.place.store.prepare()
            self.place.note("runner", "runner_started", node=self.node, attempt=self.work.attempt, pid=os.getpid())
            with Watch([self.place.store.folder]) as watch:
                self.sit()
                while not self.hear():
                    if not os.path.exists(lock):  # somebody removed the project, or this node's state
                        self.seat.end()
                        return 1
                    self.look()
                    watch.add(os.path.join(self.seat.folder, programs.EVENTS))
                    watch.sleep(self.check)
            self.place.note("runner", "runner_ended", node=self.node, attempt=self.work.attempt)
        return 0

    def sit(self) -> None:
        """Take over the seat of the runner before us, tell a living orchestrator what is new, or start one."""
        before = self.memory.get("attempt", 0)
        if before >= self.work.attempt:
            self.work = replace(self.work, attempt=before)
            if self.seat.state() != seat.NEW:
                if not self.asked():
                    self.remember(waiting="")  # it died before it asked: what it saw is still there to be seen
                return
        elif before and not self.work.fresh and self.seat.state() == seat.RUNNING:
            self.feed_back(self.work.feedback, self.work.attempt)
            return
        self.seat_new(self.work)

    def seat_new(self, work: Assignment) -> None:
        """Every start has a folder of its own: what an earlier one leaves can never be taken for this one's."""
        if self.memory.get("seat") and os.path.isdir(self.seat.folder):
            self.seat.end()
            self.memory["seat"] += 1
        self.work = work
        self.remember(**_ANEW, attempt=work.attempt, seat=self.memory.get("seat") or 1, turns=0, dones=0, edits=0)
        self.seat = orchestrator.spawn(self.place, work, self.memory["seat"], self.environ)
        self.since = time.monotonic()

    def feed_back(self, text: str, attempt: int) -> None:
        """What was wrong, to an orchestrator that is still there; to a new one if it is not."""
        work = replace(self.work, attempt=attempt, feedback=text)
        if self.seat.state() != seat.RUNNING:
            self.seat_new(work)
            return
        self.work = work
        dones = screen.look(self.seat.screen(2000)).done
        words = f"This is not yet right; {AGAIN.format(attempt)}. What was found:\n\n{text}\n\nMend it, end as before."
        self.place.tmux.type(self.seat.session, words)
        self.remember(**_ANEW, attempt=attempt, dones=dones, turns=len(self.seat.events("Stop")))
        self.since = time.monotonic()

    def hear(self) -> bool:
        """Act on what the guardian said, oldest first, then file it; True = this runner is done."""
        for signal in self.place.store.waiting(target="runner", node=self.node):
            stale = signal.attempt and signal.attempt != self.work.attempt
            ended = not stale and relay.heed(self, signal)
            self.place.store.consume(signal)
            self.place.note("runner", "heard", node=self.node, signal=signal.kind, id=signal.unique, stale=bool(stale))
            if ended:
                return True
        return False

    def look(self) -> None:
        """What the orchestrator does now, and whether somebody must know."""
        if self.memory.get("reviewing"):
            return
        state = self.seat.state()
        if state == seat.RUNNING:
            if not (self._look_at_turns() or self._look_at_tools()):
                self._look_at_screen()
        elif state == seat.ENDED and self.seat.exit_code() == 0:
            self.turn_over(f"exit.{self.memory['seat']}", "")
        elif state in (seat.ENDED, seat.GONE):
            self.crashed()
        else:
            self.seat_new(self.work)  # whoever was to start it died before it began

    def _look_at_turns(self) -> bool:
        turns = self.seat.events("Stop")
        if len(turns) <= self.memory.get("turns", 0):
            return False
        name, record = turns[-1]
        if record.get("background_tasks"):
            return False  # its workers go on, and it will be woken by them
        self.turn_over(name, str(record.get("last_assistant_message") or ""))
        self.remember(turns=len(turns))  # last: whoever takes over sees a turn again that nobody was told of
        return True

    def _look_at_tools(self) -> bool:
        """Direct edits by the orchestrator itself, where only its workers may."""
        if not self.work.forbid:
            return False
        used = [
            (name, f"{record.get('tool_name')}({_short(record.get('tool_input'))})")
            for name, record in self.seat.events("PreToolUse")
            if record.get("tool_name") in self.work.forbid and not record.get("agent_id")
        ]
        if len(used) <= self.memory.get("edits", 0):
            return False
        self.violation(used[-1][1])
        self.remember(edits=len(used))
        return True

    def _look_at_screen(self) -> None:
        text = self.seat.screen()
        sight = screen.look(text)
        if sight.progress != self.progress:
            self.progress, self.since = sight.progress, time.monotonic()
        quiet = time.monotonic() - self.since
        self._keep_health(sight)
        if self.memory.get("waiting") and not self._answered_by_hand(sight):
            return
        if sight.question and (not sight.waits or quiet >= QUIET):
            self.needs_input(sight.question, sight.options)
        elif sight.done and self._said_done():
            self.turn_over(f"done.{self.memory['seat']}.{self.work.attempt}", "")
        elif self._edited_on_screen(sight):
            self.violation(sight.edit)
            self.remember(edit=sight.edit)
        elif sight.repeated and sight.error not in self.errors:
            self.errors.add(sight.error)
            self.stuck(text, quiet)
        elif quiet >= self.work.stuck:
            self.since = time.monotonic()
            self.stuck(text, quiet)

    def _said_done(self) -> bool:
        """Below what it was told last; where that was never shown, more often than before. A screen may lose its top."""
        text, mark = self.seat.screen(2000), AGAIN.format(self.work.attempt)
        if mark in text and self.memory.get("shown") != self.work.attempt:
            self.remember(shown=self.work.attempt)
        if self.memory.get("shown") == self.work.attempt:
            return screen.look(text.rpartition(mark)[2]).done > 0
        return bool(screen.look(text).done > self.memory.get("dones", 0))

    def _edited_on_screen(self, sight: Sight) -> bool:
        """For programs without hooks; with them the screen would only say it again."""
        tool = sight.edit.partition("(")[0]
        if not sight.edit or self.seat.events() or _ALIASES.get(tool, tool) not in self.work.forbid:
            return False
        return bool(sight.edit != self.memory.get("edit"))

    def turn_over(self, turn: str, message: str) -> None:
        """A turn has ended: a question to be answered, or work to be reviewed."""
        asked = self._asked(turn, message)
        if asked:
            self.needs_input(asked, (), turn)
            return
        text = self.seat.screen(2000)
        self._keep_health(screen.look(text))
        path = self.place.node(self.node, f"evidence-{self.work.attempt}.txt")
        files.write(path, f"{message}\n\n{text}\n".encode("utf-8", "replace"))
        payload = {"node_id": self.node, "evidence_path": path, "commit_hash": orchestrator.head(self.work.cwd)}
        self.send("NEEDS_REVIEW", payload, f"review.{self.node}.{self.work.attempt}")
        self.remember(reviewing=str(self.work.attempt))

    def _asked(self, turn: str, message: str) -> str:
        """The question that a last message ends with; '' = it is none. In doubt a judge reads it, if there is one."""
        last = message.strip().rpartition("\n")[2].strip()
        if "?" not in message[-300:]:
            return ""
        if self.work.judge:
            question = f"An orchestrator ended its turn with this message:\n\n{message[-TAIL:]}\n\nWhat does it mean?"
            words = {"DONE": "", "QUESTION": "the question"}
            word, rest = judging.decide(self.place, self.work.judge, self.node, f"turn.{turn}", question, words)
            return "" if word == "DONE" else rest or last if word == "QUESTION" else message.strip()[-TAIL:]
        return last if last.endswith("?") else ""

    def needs_input(self, question: str, options: tuple[str, ...], turn: str = "", shown: str = "") -> None:
        token = f"input.{self.node}.{self.work.attempt}.{self.memory.get('inputs', 0)}"
        payload = {"node_id": self.node, "question_text": question, "options": list(options)}
        self.remember(waiting=token, question=shown or question, by_screen=not turn)  # first: an answer may be quick
        self.send("NEEDS_INPUT", payload, token)

    def asked(self) -> str:
        """The file of the question that waits for an answer; '' = there is none."""
        token = self.memory.get("waiting")
        return os.path.basename(self.place.store.replied(token, "NEEDS_INPUT")) if token else ""

    def _answered_by_hand(self, sight: Sight) -> bool:
        """A person who attached to the session was faster: what was asked is not on the screen any more."""
        if not self.memory.get("by_screen") or sight.question == self.memory.get("question"):
            return False
        self.answered()
        return True

    def answered(self) -> None:
        self.remember(waiting="", question="", inputs=self.memory.get("inputs", 0) + 1)
        self.since = time.monotonic()

    def violation(self, evidence: str) -> None:
        count = self.memory.get("violations", 0) + 1
        payload = {"node_id": self.node, "violation_type": "direct_edit", "evidence": evidence}
        self.send("VIOLATION", payload, f"violation.{self.node}.{self.work.attempt}.{count}")
        self.remember(violations=count)

    def stuck(self, text: str, quiet: float) -> None:
        count = self.memory.get("stucks", 0) + 1
        payload = {"node_id": self.node, "last_output": text[-TAIL:], "duration_seconds": round(quiet, 1)}
        self.send("ORCHESTRATOR_STUCK", payload, f"stuck.{self.node}.{self.work.attempt}.{count}")
        self.remember(stucks=count)

    def crashed(self) -> None:
        last, code = self.seat.screen()[-TAIL:], self.seat.exit_code()
        payload = {"node_id": self.node, "last_output": last, "exit_code": code}
        self.send("ORCHESTRATOR_CRASHED", payload, f"crash.{self.node}.{self.work.attempt}.{self.memory['seat']}")

    def send(self, kind: str, payload: Mapping[str, Any], token: str) -> str:
        """Each thing is said once, also by a runner that takes over; the file's name, '' = it was said before."""
        sent = self.place.store.once(Signal(kind, payload, reply=token, attempt=self.work.attempt))
        if sent is None:
            return ""
        self.place.note("runner", "signalled", node=self.node, signal=kind, id=sent.unique)
        return os.path.basename(sent.path)

    def remember(self, **more: object) -> None:
        self.memory |= more
        places.save(self.place.node(self.node, "runner.json"), self.memory)

    def _keep_health(self, sight: Sight) -> None:
        """Tokens and context, for whoever asks; written only when they change."""
        health = {"context_left": sight.context_left, "tokens": sight.tokens, **seat.usage(self.seat)}
        if health != self.memory.get("health"):
            self.remember(health=health)


def start(place: Place, node: str, environ: Mapping[str, str], check: float = 1.0) -> int:
    """Run the runner of a node whose assignment the guardian has left."""
    found = assignments.parsed(places.load(place.node(node, "node.json"))["assignment"])
    return Runner(place, found, environ, check).run()


def _short(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("file_path") or value.get("notebook_path") or ""
    return str(value)[:200]
