"""A review by a program of the project's own: its exit code is the whole contract."""

from __future__ import annotations

from pathlib import Path

from doflow.flow.model import Outcome, Status
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command

_HOUR = 3600


def run(job: Job, world: World) -> Outcome:
    """0 converged, 1 error, 2 NO-GO, 3 rate limit; any other code is an error, never a pass."""
    step = job.step
    argv = world.settings.review_command
    if not argv:
        hint = "doflow.yaml: review_command: [./review.sh], or review_mode: llm"
        return Outcome(Status.FAILED, f"{step.id} is to be reviewed by a command, and none is named", hint)
    target = world.path(step.reads[0].path) if step.reads else world.run.dir
    words = ("--type", step.id, "--target", target, "--feature-dir", world.run.dir, "--project-dir", str(world.root))
    log = watching.log_path(job, world, 1)
    Path(log).unlink(missing_ok=True)
    extra = {"DOFLOW_RUN": world.run.name, "DOFLOW_RUN_DIR": str(world.run_dir), "DOFLOW_STEP": step.id}
    command = Command((*argv, *words), env=environment.for_shell(world.environ, extra), cwd=str(world.root))
    result = process.run(command, log, log, watching.timeout_of(job, world), watching.beat(job, world, log))
    said = process.tail(log, 1500)
    hint = f"doflow logs {step.id} shows what it said; then: {world.again}"
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    if result.stopped or result.code not in (0, 2, 3):
        return Outcome(Status.FAILED, f"{process.explain(result, argv)}\n{said}", hint)
    if result.code == 2:
        return Outcome(Status.PAUSED, f"NO-GO: {step.id} did not converge\n{said}", hint)
    if result.code == 3:
        from doflow.agents.contract import resume_at

        return Outcome(Status.RATE_LIMITED, f"{argv[0]} is rate limited", hint, resume_at=resume_at(""))
    return Outcome(Status.DONE, marker="GO")
