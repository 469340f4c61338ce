"""A step in a tmux pane (`via: tmux`): the same call as headless, where a person can watch and help.

The pane is on a leash: it ends with the turn, with the step's limits, and with doflow, however that ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from doflow.agents import contract, registry
from doflow.agents.adapters import claude, vendor_cli as endings
from doflow.flow.model import Ask, Outcome, Profile, Status, Step, Usage
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.supervise import judge as judging, preflight as fitness
from doflow.supervise.panes import agent_pane as seat, programs, screen, tmux
from doflow.supervise.panes.agent_pane import Seat
from doflow.supervise.panes.programs import Wish
from doflow.supervise.panes.tmux import Tmux
from doflow.supervise.runner import replies as relay
from doflow.supervise.signals.store import Store
from doflow.supervise.workspace import Place, held
from doflow.util import atomic_files as files, deferred as idle
from doflow.util.process import runner as process
from doflow.util.process.command import Result, Timeout
from doflow.util.records import replace

INTERVAL = 0.25
QUIET = 3.0


def send(ask: Ask, job: Job, world: World, out: str) -> Outcome:
    """One call in a pane of its own, from start to end."""
    name = f"run-{world.run.name}"
    folder = _folder(world, out)
    server = Tmux(tmux.socket_of(str(world.root), name, world.environ), folder)
    found = Seat(server, tmux.session_of(job.name).replace("orch-", "step-", 1), folder)
    place = Place(str(world.root), name, "", world.settings, Store(os.path.join(folder, "signals")), server)
    with held(os.path.join(folder, "leash"), f"{job.name} is at work"):
        _take(found, ask, world)
        attach = server.attach(found.session)
        world.ledger.add("warning", **job.where, message=f"{job.name} works in tmux; watch it with: {attach}")
        turn = _Turn(found, ask, job, world, place)
        try:
            turn.attend(watching.timeout_of(job, world), watching.beat(job, world, out))
        finally:
            found.end()
    return _outcome(turn, ask, out)


def refuse(step: Step, profile: Profile, world: World) -> None:
    """Before a run begins: what `via: tmux` and `judge` of a step need."""
    fitness.of_step(step, profile, world.settings)
    tmux.check()


def _folder(world: World, out: str) -> str:
    """A new folder beside the log of the attempt."""
    base = os.path.basename(out).removesuffix(".log")
    number = 1
    while os.path.exists(os.path.join(world.state_dir, "panes", f"{base}.{number}")):
        number += 1
    path = os.path.join(world.state_dir, "panes", f"{base}.{number}")
    os.makedirs(path)
    return path


def _take(found: Seat, ask: Ask, world: World) -> None:
    """End what a killed doflow may have left in this session, then start."""
    before = found.tmux.mark(found.session, "seat") if found.tmux.exists(found.session) else ""
    if before:
        Seat(found.tmux, found.session, before).end()
    words = () if programs.tells(ask.profile.use) else ("", programs.ENDING)
    wish = Wish(
        ask.profile, "\n".join((ask.prompt, *words)), found.folder, ask.root, ask.root, ask.model,
        variables=contract.variables(ask), resume=ask.resume,
        may="read" if ask.read_only else "run" if endings.shell(ask) else "write",
        words=claude.permissions(ask) if ask.profile.use == claude.NAME else (),
    )  # fmt: skip
    seat.take(found, programs.start(wish, world.environ), {"run": world.run.name}, os.path.join(found.folder, "leash"))


class _Turn:
    """One turn of the agent, watched."""

    def __init__(self, found: Seat, ask: Ask, job: Job, world: World, place: Place) -> None:
        self.seat, self.ask, self.job, self.world, self.place = found, ask, job, world, place
        self.record: dict[str, Any] = {}
        self.stopped, self.text, self.code = "", "", -1
        self.begun = self.since = time.monotonic()
        self.progress, self.asked = "", ""

    def attend(self, limits: Timeout, tick: Callable[[float, int], None]) -> None:
        """Until the turn is over, or a limit is reached."""
        while not self._over():
            now = time.monotonic()
            tick(now - self.begun, len(self.text))
            if process.stopping():
                self.stopped = "cancelled"
            elif 0 < limits.max <= now - self.begun:
                self.stopped = "max"
            elif 0 < limits.idle <= now - self.since:
                self.stopped = "idle"
            if self.stopped:
                return
            idle.due()
            time.sleep(INTERVAL)

    def _over(self) -> bool:
        turns = [record for _, record in self.seat.events("Stop") if not record.get("background_tasks")]
        state = self.seat.state()
        self.text = self.seat.screen(2000)
        if turns:
            self.record, self.code = turns[-1], 0
            return True
        if state != seat.RUNNING:
            code = self.seat.exit_code()
            self.code = -9 if code is None else code
            return True
        sight = screen.look(self.text)
        if sight.done:
            self.code = 0
            return True
        if sight.progress != self.progress:
            self.progress, self.since = sight.progress, time.monotonic()
        if sight.question and (not sight.waits or time.monotonic() - self.since >= QUIET):
            self._question(sight.question, sight.options)
        return False

    def _question(self, question: str, options: tuple[str, ...]) -> None:
        """The judge answers, if there is one who can tell; else the person is told where to."""
        if question == self.asked:
            return
        self.asked = question
        answer = self._judged(question, options) if self.job.step.judge else ""
        if answer and relay.type_answer(self.seat, answer):
            self.world.ledger.add(
                "warning", **self.job.where, message=f"asked: {question}; {self.job.step.judge}: {answer}"
            )
            return
        attach = self.seat.tmux.attach(self.seat.session)
        message = f"{self.job.name} asks: {question}. Answer it there: {attach}"
        self.world.ledger.add("warning", **self.job.where, message=message)

    def _judged(self, question: str, options: tuple[str, ...]) -> str:
        offered = "".join(f"\n{number}. {said}" for number, said in enumerate(options, 1))
        words = {"ANSWER": "the answer in one line, or the number of an option", "ESCALATE": "why a person must decide"}
        asked = f"An agent does this:\n\n{self.ask.prompt[-6000:]}\n\nIt asks:\n\n{question}{offered}"
        token = f"{os.path.basename(self.seat.folder)}.{keys.short(question)}"
        word, rest = judging.decide(self.place, self.job.step.judge, self.job.step.id, token, asked, words)
        return rest if word == "ANSWER" else ""


def _outcome(turn: _Turn, ask: Ask, out: str) -> Outcome:
    """As the adapter reads it, where there is an exit code to read; a turn that its hook told of is done."""
    err = out.removesuffix(".log") + ".err.log"
    said = str(turn.record.get("last_assistant_message") or "")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    files.write(out, (said or turn.text).encode("utf-8", "replace") + b"\n", sync=False)
    result = Result(turn.code, out, err, time.monotonic() - turn.begun, turn.stopped)
    if turn.record and not turn.stopped:
        used = seat.usage(turn.seat)
        usage = Usage(used["tokens_in"], used["tokens_out"]) if used else None
        return Outcome(
            Status.DONE, text=said, session=str(turn.record.get("session_id", "")), model=ask.model, usage=usage
        )
    if programs.tells(ask.profile.use) and not turn.stopped:
        last = screen.look(turn.text).error or (turn.text.strip().splitlines() or ["it showed nothing"])[-1].strip()
        reason = f"{ask.profile.name} ended before its turn was over: {last[:300]}"
        gone = bool(ask.resume) and not turn.seat.events("UserPromptSubmit")
        return Outcome(Status.FAILED, reason, f"what it showed: {out}", turn.text, transient=True, gone=gone)
    text = "\n".join(line for line in turn.text.splitlines() if line.strip() != screen.DONE)
    outcome = registry.find("command").outcome(ask, result, lambda: text)
    return replace(outcome, text=text)
