"""The terminal guardian, layer 0: starts a headless guardian per pipeline, starts it again when it dies, shows what is asked
and takes the answers. Killed itself, it leaves the guardians at work; the same command finds them again."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from doflow.supervise import daemon as detach, ownership as driver, workspace as places
from doflow.supervise.guardian import menu, runner_pool as crew, stop as stopping, validation
from doflow.supervise.guardian.diary import Follower
from doflow.supervise.guardian.loop import PAUSED
from doflow.supervise.guardian.state import Say
from doflow.supervise.signals.types import Signal
from doflow.supervise.signals.watch import Watch
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError
from doflow.util.process import notify

RESTARTS, WITHIN = 5, 600.0


class Ward:
    """One pipeline that is watched over."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lock = os.path.join(place.folder, "guardian.lock")
        self.pid = 0
        self.code: int | None = None
        self.complete = False
        self.starts: list[float] = []
        self.diary = Follower(os.path.join(place.folder, "events.jsonl"))

    def alive(self) -> bool:
        if self.pid:
            self.code = detach.ended(self.pid)
            if self.code is not None:
                self.pid = 0
        return bool(places.holder(self.lock)) or bool(self.pid and detach.alive(self.pid))


class Terminal:
    """Layer 0 at work. `ask` = a person sits there who can be asked."""

    def __init__(self, wards: Sequence[Ward], environ: Mapping[str, str], say: Say, stdin: TextIO | None) -> None:
        self.wards = wards
        self.environ = environ
        self.say = say
        self.stdin = stdin
        self.asking: list[tuple[Ward, Signal]] = []
        self.wait, self.check, self.glance = True, 1.0, 2.0

    def run(self) -> int:
        """Until every pipeline has come to its end; the worst of their codes."""
        codes: dict[str, int] = {}
        with Watch([ward.place.store.folder for ward in self.wards]) as watch:
            while True:
                for ward in self.wards:
                    self._news(ward)
                    if ward.place.pipeline not in codes:
                        code = self._health(ward)
                        if code is not None:
                            codes[ward.place.pipeline] = code
                if len(codes) == len(self.wards):
                    return max(codes.values(), key=lambda code: {0: 0, 2: 1}.get(code, 2))
                self.listen(0.0)
                watch.sleep(self.check)

    def _health(self, ward: Ward) -> int | None:
        """Start a guardian where none is; None = it works. One that only falls is not started for ever."""
        if ward.alive():
            return None
        self._news(ward)
        if ward.code == PAUSED and not self.wait:
            again = " ".join(os.path.relpath(one.place.dot) for one in self.wards)
            self.say(f"{ward.place.pipeline}: paused: answer, then: doflow guardian launch {again} --no-wait")
            return PAUSED
        if ward.code == 0 or (ward.code == 1 and ward.complete):
            return ward.code
        if stopping.stopped(ward.place):
            self.say(f"{ward.place.pipeline}: stopped; go on: doflow guardian launch {os.path.relpath(ward.place.dot)}")
            return PAUSED
        now = time.monotonic()
        ward.starts = [when for when in ward.starts if now - when < WITHIN]
        if len(ward.starts) >= RESTARTS:
            log = os.path.join(ward.place.folder, "guardian.log")
            self.say(f"{ward.place.pipeline}: its guardian fell {RESTARTS} times; it stays down. Its log: {log}")
            return 1
        if ward.code is not None:
            self.say(
                f"{ward.place.pipeline}: its guardian ended ({ward.code}); it is started again, with all that was done"
            )
        ward.starts.append(now)
        ward.pid, ward.code = launch_guardian(ward.place, self.environ, self.wait, self.glance), None
        ward.place.note("terminal", "guardian_launched", pid=ward.pid)
        self.say(f"{ward.place.pipeline}: guardian {ward.pid}")
        return None

    def _news(self, ward: Ward) -> None:
        for words in ward.diary.news():
            self.say(f"{ward.place.pipeline}: {words}")
        for signal in ward.place.store.waiting(target="terminal"):
            with ward.place.store.claimed(signal) as mine:
                if mine:
                    self._heed(ward, signal)
                    ward.place.store.consume(signal)

    def _heed(self, ward: Ward, signal: Signal) -> None:
        name, payload = ward.place.pipeline, signal.payload
        ward.place.note("terminal", "heard", signal=signal.kind, id=signal.unique)
        if signal.kind == "PIPELINE_COMPLETE":
            ward.complete = True
            self.say(f"{name}: PIPELINE_COMPLETE: {payload['summary']}")
            self._notify(ward, "done", str(payload["summary"]), "")
        elif signal.kind == "GUARDIAN_ERROR":
            self.say(f"{name}: GUARDIAN_ERROR: {payload['error']}")
            self._notify(
                ward, "failed", str(payload["error"]), f"its log: {os.path.join(ward.place.folder, 'guardian.log')}"
            )
        else:
            self._notify(ward, "paused", str(payload["issue"]), self._ask(ward, signal))

    def _ask(self, ward: Ward, signal: Signal) -> str:
        """Show a question, take up its answer if somebody sits here; how it is answered from elsewhere."""
        name, payload, token = ward.place.pipeline, signal.payload, signal.reply or signal.token
        hint = f"doflow signal answer {token} '…' --pipeline {name}"
        self.say(f"{name}: ESCALATION: {payload['issue']}{menu.lines(payload['options'])}\n  next: {hint}")
        if self.stdin is not None:
            self.asking.append((ward, signal))
            self._prompt()
        return hint

    def recall(self) -> None:
        """What an earlier launch has shown, and nobody has answered, is shown again."""
        for ward in self.wards:
            new = {signal.unique for signal in ward.place.store.waiting(target="terminal")}
            for signal in open_questions(ward.place):
                if signal.unique not in new:
                    self._ask(ward, signal)

    def _prompt(self) -> None:
        ward, signal = self.asking[0]
        self.say(
            f"{ward.place.pipeline}: your answer to: {signal.payload['issue']}{menu.lines(signal.payload['options'])}"
        )

    def listen(self, seconds: float) -> None:
        """A line that the person typed is the answer to the oldest open question."""
        while self.asking and _settled(*self.asking[0]):
            self.asking.pop(0)
        if self.stdin is None or not self.asking or not select.select([self.stdin], [], [], seconds)[0]:
            return
        line = self.stdin.readline()
        if not line:
            self.stdin = None  # nobody types any more: `doflow signal answer` still does it
            return
        text = line.strip()
        if text:
            ward, signal = self.asking.pop(0)
            options = signal.payload["options"]
            chosen = options[int(text) - 1] if text.isdecimal() and 1 <= int(text) <= len(options) else text
            try:
                answer(ward.place, signal, chosen, "terminal")
            except UsageError as error:
                self.say(f"{ward.place.pipeline}: {error}")
                self.asking.insert(0, (ward, signal))
                return
            self.say(f"{ward.place.pipeline}: answered: {chosen}")

    def _notify(self, ward: Ward, event: str, message: str, hint: str) -> None:
        command = ward.place.settings.notify
        if command:
            root = Path(ward.place.root)
            trouble = notify.tell(
                command, event, ward.place.pipeline, "guardian", message, hint, self.environ, root=root
            )
            if trouble:
                self.say(trouble)


def launch(
    names: Sequence[str],
    placed: Sequence[Place],
    environ: Mapping[str, str],
    say: Say,
    stdin: TextIO | None,
    wait: bool,
    check: float = 2.0,
) -> int:
    """Watch over these pipelines. What cannot be run at all is said before anything is started."""
    from doflow.flow.dot import parser as reading

    for name, place in zip(names, placed, strict=True):
        if not place.dot:
            raise UsageError(f"there is no pipeline {name!r}", "name its file, for example pipelines/auth.dot")
        validation.refuse(reading.read(place.dot), place)
        crew.refuse(place, environ)
        with driver.together(place.root, place.dot):
            pass  # a run of doit is refused here, not by guardians that fall
        places.begin(place)
        stopping.forget(place)
    known = [place.pipeline for place in placed]
    twice = next((name for name in known if known.count(name) > 1), "")
    if twice:
        raise UsageError(f"two pipelines are called {twice}", "give one of the files another name")
    terminal = Terminal([Ward(place) for place in placed], environ, say, stdin)
    terminal.wait, terminal.check, terminal.glance = wait, min(1.0, check), check
    terminal.recall()
    return terminal.run()


def launch_guardian(place: Place, environ: Mapping[str, str], wait: bool = True, check: float = 2.0) -> int:
    """A headless guardian as a process of its own, without CLAUDECODE in its environment; its pid."""
    words = ("guardian", "run", place.dot, "--check", str(check), *(() if wait else ("--no-wait",)))
    log = os.path.join(place.folder, "guardian.log")
    return detach.start(words, place.root, log, {**environ, "DOFLOW_SIGNALS": place.base})


def answer(place: Place, escalation: Signal, text: str, by: str) -> str:
    """Keep a person's answer; the guardian is woken by it. One that is no answer is refused."""
    menu.refuse(text, escalation.payload["options"], escalation.reply or escalation.token, place.pipeline)
    path = place.store.answer(escalation.reply or escalation.token, text, by)
    place.note("terminal", "answered", to=escalation.reply or escalation.token, text=text[:500], by=by)
    return path


def open_questions(place: Place) -> list[Signal]:
    """Escalations without an answer, oldest first."""
    return [one for one in place.store.history() if one.kind == "ESCALATION" and not _answered(place, one)]


def _answered(place: Place, signal: Signal) -> bool:
    return place.store.answered(signal.reply or signal.token) is not None


def _settled(ward: Ward, signal: Signal) -> bool:
    return _answered(ward.place, signal)
