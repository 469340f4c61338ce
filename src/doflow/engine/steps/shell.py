"""A step that a command does. With `repair`, a failing command is fed back to an agent and tried again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from doflow.engine.jobs import runner as frame
from doflow.flow.model import Outcome, Status, Step
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.util.process import runner as process
from doflow.util.process.command import Command

if TYPE_CHECKING:
    from doflow.agents.sessions import Session
    from doflow.guard.fence.fence import Fence


def run(step: Step, world: World, fence: Fence) -> Outcome:
    def produce(job: Job, world: World, attempt: int) -> Outcome:
        return _mend(job, world, fence, attempt) if job.step.repair else _tried(job, world, fence, attempt)

    return frame.perform(job(step, world), world, fence, produce)


def job(step: Step, world: World) -> Job:
    makes = tuple(world.path(said) for said in step.makes)
    writes = None if (step.repair or step.protect) and step.writes is None else tuple(step.writes or ())
    return Job(step, world.key(step), makes, writes)


def _mend(job: Job, world: World, fence: Fence, attempt: int) -> Outcome:
    """The command, and an agent after each time that it fails. What an agent has mended is the step's from then on: an
    interruption leaves it there, and the next command goes on with it."""
    from doflow.engine.jobs import agent_results as returned

    entry = returned.kept(job, world) or {}
    turns = int(entry.get("repairs", 0))
    session: Session | None = None
    if turns:
        from doflow.agents import sessions

        session = sessions.told(entry)
        with world.guard:
            fence.keep(job)
    outcome = _tried(job, world, fence, attempt + turns)
    while not outcome.ok and outcome.status is not Status.CANCELLED and turns < job.step.repair:
        turns += 1
        mended = _handed(job, world, fence, outcome, turns, session)
        if not mended.ok:
            return frame.put_off(job, world, fence, mended) if mended.status in frame.WAITING else mended

        from doflow.agents import sessions

        session = sessions.left(mended)
        outcome = _tried(job, world, fence, attempt + turns)
    return frame.put_off(job, world, fence, outcome) if outcome.status is Status.CANCELLED else outcome


def _handed(job: Job, world: World, fence: Fence, failed: Outcome, turn: int, session: Session | None) -> Outcome:
    message = f"{failed.reason}; handed to an agent ({turn} of {job.step.repair})"
    world.ledger.add("warning", **job.where, message=message)

    from doflow.agents import call as calling

    mended = calling.call(job, world, turn, role="repair", trouble=failed.text, session=session)
    mended = frame.accepted(job, world, fence, mended, turn, turn, unfinished=True)
    if mended.ok:
        with world.guard:
            fence.keep(job)
    return mended


def _tried(job: Job, world: World, fence: Fence, attempt: int) -> Outcome:
    """The command, and again as often as the step itself says: there a failure is taken for a passing one. What defaults
    and settings say of `retry` is meant for agents."""
    outcome = _command(job, world, fence, attempt)
    if job.step.again is None or not world.settings.retry_enabled:
        return outcome

    from doflow.agents import rate_limits as patience

    for turn in range(1, job.step.again.attempts + 1):
        if outcome.ok or outcome.status is Status.CANCELLED:
            break
        wait = patience.backoff(job.step.again, turn)
        reason = outcome.reason.partition("\n")[0]
        world.ledger.add("retry", **job.where, attempt=turn, reason=reason, wait=round(wait, 3))
        if not patience.sleep(wait):
            return Outcome(Status.CANCELLED, "interrupted while waiting for the next attempt")
        outcome = _command(job, world, fence, attempt)
    return outcome


def _command(job: Job, world: World, fence: Fence, attempt: int) -> Outcome:
    """With `writes` it is held to that, and what they name is the step's work; else what it writes is left as it is."""
    if not job.watched or job.step.writes is not None:
        return _run(job, world, attempt)
    from doflow.engine.jobs import contract as checking

    with checking.by_command(job, world, fence, check=False):
        return _run(job, world, attempt)


def _run(job: Job, world: World, attempt: int) -> Outcome:
    step = job.step
    params = world.params_of(step)
    argv = tuple(keys.substitute(word, params) for word in step.run)
    argv = argv or ("sh", "-c", keys.substitute(step.shell, params))
    log = watching.free_path(job, world, attempt) if step.again else watching.log_path(job, world, attempt)
    watching.begin_log(log, world)
    command = Command(argv, env=_environment(job, world), cwd=str(world.root))
    tick = watching.beat(job, world, log)
    result = process.run(command, log, log, watching.timeout_of(job, world), tick)
    watching.end_log(log, world)
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    if result.code == 0 and not result.stopped:
        return Outcome(Status.DONE, text=process.tail(log) if step.routes or step.from_text else "")
    words = process.explain(result, argv)
    last = process.tail(log, 1500)
    status = Status.TIMEOUT if result.stopped else Status.FAILED
    hint = f"doflow logs {step.id} shows all of its output; then: {world.again}" if os.path.exists(log) else world.again
    return Outcome(status, f"{words}\n{_indented(last)}" if last.strip() else words, hint, text=f"{words}\n{last}")


def _environment(job: Job, world: World) -> dict[str, str]:
    makes = "\n".join(str(world.root / path) for path in job.makes)
    extra = {"DOFLOW_RUN": world.run.name, "DOFLOW_RUN_DIR": str(world.run_dir), "DOFLOW_STEP": job.step.id}
    return world.shell | extra | ({"DOFLOW_MAKES": makes} if makes else {})


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-12:])
