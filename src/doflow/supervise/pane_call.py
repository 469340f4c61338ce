"""A step in a tmux pane (`via: tmux`): the same call as headless, where a person can watch and help.

The pane ends with the turn, at the step's limits, and when doflow ends in any way (the `leash` lock).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from doflow.agents import registry
from doflow.agents.adapters import claude, vendor_cli
from doflow.flow.model import Ask, Outcome, Profile, Status, Step, Usage
from doflow.runs import fingerprint, jobs
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.place import ProgramNeeds
from doflow.supervise import judge
from doflow.supervise.panes import agent_pane, programs, screen, tmux
from doflow.supervise.panes.agent_pane import AgentPane
from doflow.supervise.panes.programs import PaneProgram, PaneRequest
from doflow.supervise.panes.tmux import Tmux
from doflow.supervise.pipeline_context import PipelineContext, held
from doflow.supervise.runner import orchestrator
from doflow.supervise.signal_store import SignalStore
from doflow.util import atomic_files, deferred
from doflow.util.process import runner
from doflow.util.process.runner import Result, Timeout

INTERVAL = 0.25
QUIET = 3.0


def send(ask: Ask, job: Job, context: RunContext, out: str) -> Outcome:
    """One call in its own pane, from start to end."""
    name = f"run-{context.run.name}"
    folder = _folder(context, out)
    server = Tmux(tmux.socket_name(str(context.root), name, context.environ), folder)
    pane = AgentPane(server, tmux.session_name(job.name).replace("orch-", "step-", 1), folder)
    pipeline_context = PipelineContext(
        str(context.root), name, "", context.settings, SignalStore(os.path.join(folder, "signals")), server
    )
    program = _program(pane, ask, context)
    needs = ProgramNeeds(writable=(pane.folder,))
    with (
        context.place.entered(program.command, needs) as command,
        held(os.path.join(folder, "leash"), f"{job.name} is running"),
    ):
        _start(pane, replace(program, command=command), context)
        attach = server.attach(pane.session)
        context.events.add("warning", **job.where, message=f"{job.name} runs in tmux; watch it with: {attach}")
        turn = _Turn(pane, ask, job, context, pipeline_context)
        try:
            tick = jobs.heartbeat(job, context, out, vendor_cli.limit_complaint)
            turn.wait(jobs.job_timeout(job, context), tick)
        finally:
            pane.end()
    return _outcome(turn, ask, out)


def check(step: Step, profile: Profile, context: RunContext) -> None:
    """Before a run starts: check what `via: tmux` and `judge` of a step need."""
    orchestrator.refuse_step(step, profile, context.settings)
    tmux.check_installed()


def _folder(context: RunContext, out: str) -> str:
    """A new folder for the panes of this attempt."""
    base = os.path.join(context.state_dir, "panes", os.path.basename(out).removesuffix(".log"))
    paths = (f"{base}.{number}" for number in itertools.count(1))
    path = next(path for path in paths if not os.path.exists(path))
    os.makedirs(path)
    return path


def _start(pane: AgentPane, program: PaneProgram, context: RunContext) -> None:
    """End what a killed doflow may have left in this session, then start the agent."""
    before = pane.tmux.mark(pane.session, "seat") if pane.tmux.exists(pane.session) else ""
    if before:
        AgentPane(pane.tmux, pane.session, before).end()
    agent_pane.start_pane(pane, program, {"run": context.run.name}, os.path.join(pane.folder, "leash"))


def _program(pane: AgentPane, ask: Ask, context: RunContext) -> PaneProgram:
    words = () if programs.has_stop_hook(ask.profile.use) else ("", programs.ENDING)
    request = PaneRequest(
        ask.profile, "\n".join((ask.prompt, *words)), pane.folder, ask.root, ask.root, ask.model,
        variables=registry.agent_variables(ask), resume=ask.resume,
        may="read" if ask.read_only else "run" if vendor_cli.may_run_programs(ask) else "write",
        words=claude.permissions(ask) if ask.profile.use == claude.NAME else (),
    )  # fmt: skip
    return programs.build_program(request, context.environ)


class _Turn:
    """One turn of the agent, watched."""

    def __init__(
        self, pane: AgentPane, ask: Ask, job: Job, context: RunContext, pipeline_context: PipelineContext
    ) -> None:
        self.pane, self.ask, self.job, self.context, self.pipeline_context = pane, ask, job, context, pipeline_context
        self.record: dict[str, Any] = {}
        self.stopped, self.text, self.code = "", "", -1
        self.started = self.since = time.monotonic()
        self.progress, self.asked = "", ""

    def wait(self, limits: Timeout, tick: Callable[[float, int], None]) -> None:
        """Wait until the turn is over or a limit is reached."""
        while not self._over():
            now = time.monotonic()
            tick(now - self.started, len(self.text))
            if runner.stopping():
                self.stopped = "cancelled"
            elif 0 < limits.max <= now - self.started:
                self.stopped = "max"
            elif 0 < limits.idle <= now - self.since:
                self.stopped = "idle"
            if self.stopped:
                return
            deferred.due()
            time.sleep(INTERVAL)

    def _over(self) -> bool:
        turns = [record for _, record in self.pane.events("Stop") if not record.get("background_tasks")]
        state = self.pane.state()
        self.text = self.pane.screen(2000)
        if turns:
            self.record, self.code = turns[-1], 0
            return True
        if state != agent_pane.RUNNING:
            code = self.pane.exit_code()
            self.code = -9 if code is None else code
            return True
        reading = screen.read_screen(self.text)
        if reading.done:
            self.code = 0
            return True
        if reading.progress != self.progress:
            self.progress, self.since = reading.progress, time.monotonic()
        if reading.question and (not reading.waits or time.monotonic() - self.since >= QUIET):
            self._question(reading.question, reading.options)
        return False

    def _question(self, question: str, options: tuple[str, ...]) -> None:
        """Let the judge answer; otherwise tell the person where to answer."""
        if question == self.asked:
            return
        self.asked = question
        answer = self._judged(question, options) if self.job.step.judge else ""
        if answer and agent_pane.type_answer(self.pane, answer):
            message = f"asked: {question}; {self.job.step.judge}: {answer}"
        else:
            attach = self.pane.tmux.attach(self.pane.session)
            message = f"{self.job.name} asks: {question}. Answer in tmux: {attach}"
        self.context.events.add("warning", **self.job.where, message=message)

    def _judged(self, question: str, options: tuple[str, ...]) -> str:
        offered = "".join(f"\n{number}. {option}" for number, option in enumerate(options, 1))
        words = {"ANSWER": "the answer in one line, or the number of an option", "ESCALATE": "why a person must decide"}
        asked = f"An agent does this:\n\n{self.ask.prompt[-6000:]}\n\nIt asks:\n\n{question}{offered}"
        token = f"{os.path.basename(self.pane.folder)}.{fingerprint.short_hash(question)}"
        word, rest = judge.decide(self.pipeline_context, self.job.step.judge, self.job.step.id, token, asked, words)
        return rest if word == "ANSWER" else ""


def _outcome(turn: _Turn, ask: Ask, out: str) -> Outcome:
    """The outcome of a turn: done if a hook reported its end, else as the adapter reads it."""
    err = out.removesuffix(".log") + ".err.log"
    message = str(turn.record.get("last_assistant_message") or "")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    atomic_files.write_file(out, (message or turn.text).encode("utf-8", "replace") + b"\n", sync=False)
    result = Result(turn.code, out, err, time.monotonic() - turn.started, turn.stopped)
    if turn.record and not turn.stopped:
        used = agent_pane.token_usage(turn.pane)
        usage = Usage(used["tokens_in"], used["tokens_out"]) if used else None
        session = str(turn.record.get("session_id", ""))
        return Outcome(Status.DONE, text=message, session=session, model=ask.model, usage=usage)
    if programs.has_stop_hook(ask.profile.use) and not turn.stopped:
        last = screen.read_screen(turn.text).error or (turn.text.strip().splitlines() or ["no output"])[-1].strip()
        reason = f"{ask.profile.name} ended before the end of its turn: {last[:300]}"
        gone = bool(ask.resume) and not turn.pane.events("UserPromptSubmit")
        return Outcome(Status.FAILED, reason, f"its output: {out}", turn.text, transient=True, gone=gone)
    text = "\n".join(line for line in turn.text.splitlines() if line.strip() != screen.DONE)
    outcome = registry.find_agent("command").outcome(ask, result, lambda: text)
    return replace(outcome, text=text)
