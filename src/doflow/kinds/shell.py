"""A step that a command does. With `repair`, a failing command is fed back to an agent and tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doflow import frame, keys, process, watching
from doflow.job import Job
from doflow.model import Command, Outcome, Status, Step
from doflow.world import World

if TYPE_CHECKING:
    from doflow.guards.fence import Fence
    from doflow.sessions import Session


def run(step: Step, world: World, fence: Fence) -> Outcome:
    return frame.perform(job(step, world), world, fence, produce)


def job(step: Step, world: World) -> Job:
    makes = tuple(world.path(said) for said in step.makes)
    writes = None if (step.repair or step.protect) and step.writes is None else tuple(step.writes or ())
    return Job(step, world.key(step), makes, writes)


def produce(job: Job, world: World, attempt: int) -> Outcome:
    outcome = _run(job, world, attempt)
    session: Session | None = None
    for turn in range(1, job.step.repair + 1):
        if outcome.ok or outcome.status is Status.CANCELLED:
            break
        world.ledger.add(
            "warning", **job.where, message=f"{outcome.reason}; handed to an agent ({turn} of {job.step.repair})"
        )

        from doflow import calling, sessions

        mended = calling.call(job, world, turn, role="repair", trouble=outcome.text, session=session)
        if not mended.ok:
            return mended
        session = sessions.left(mended)
        outcome = _run(job, world, attempt + turn)
    return outcome


def _run(job: Job, world: World, attempt: int) -> Outcome:
    step = job.step
    params = world.params_of(step)
    argv = tuple(keys.substitute(word, params) for word in step.run)
    argv = argv or ("sh", "-c", keys.substitute(step.shell, params))
    log = watching.log_path(job, world, attempt)
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
    hint = f"doflow logs {step.id} shows all of its output; then: {world.again}"
    return Outcome(status, f"{words}\n{_indented(last)}" if last.strip() else words, hint, text=f"{words}\n{last}")


def _environment(job: Job, world: World) -> dict[str, str]:
    makes = "\n".join(str(world.root / path) for path in job.makes)
    extra = {"DOFLOW_RUN": world.run.name, "DOFLOW_RUN_DIR": str(world.run_dir), "DOFLOW_STEP": job.step.id}
    return world.shell | extra | ({"DOFLOW_MAKES": makes} if makes else {})


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-12:])
