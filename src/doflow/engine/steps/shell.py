"""A step done by a command. With `repair`, the output of a failing command goes to an agent and the command runs again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from doflow.agents import call, rate_limits
from doflow.engine.jobs import agent_results, job_runner
from doflow.flow.model import Outcome, Status, Step
from doflow.runs import fingerprint, jobs, next_steps
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next
from doflow.util.process import runner as process
from doflow.util.process.runner import Command

if TYPE_CHECKING:
    from doflow.agents.call import Session
    from doflow.guard.workspace.interface import Workspace


def run(step: Step, context: RunContext, fence: Workspace) -> Outcome:
    def produce(job: Job, context: RunContext, attempt: int) -> Outcome:
        run_command = _run_with_repair if job.step.repair else _run_with_retries
        return run_command(job, context, fence, attempt)

    return job_runner.run_job(job(step, context), context, fence, produce)


def job(step: Step, context: RunContext) -> Job:
    makes = tuple(context.files.path(said) for said in step.makes)
    writes = None if (step.repair or step.protect) and step.writes is None else tuple(step.writes or ())
    return Job(step, context.key(step), makes, writes)


def _run_with_repair(job: Job, context: RunContext, fence: Workspace, attempt: int) -> Outcome:
    """Run the command, and an agent after each failure. An interruption keeps the repairs: the next run continues there."""
    entry = agent_results.find_returned(job, context) or {}
    turns = int(entry.get("repairs", 0))
    session: Session | None = None
    if turns:
        session = call.session_from_entry(entry)
        with context.guard:
            fence.keep(job)
    outcome = _run_with_retries(job, context, fence, attempt + turns)
    while not outcome.ok and outcome.status is not Status.CANCELLED and turns < job.step.repair:
        turns += 1
        repaired = _handed(job, context, fence, outcome, turns, session)
        if not repaired.ok:
            waiting = repaired.status in job_runner.WAITING
            return job_runner.postpone(job, context, fence, repaired) if waiting else repaired
        session = call.session_of(repaired)
        outcome = _run_with_retries(job, context, fence, attempt + turns)
    return job_runner.postpone(job, context, fence, outcome) if outcome.status is Status.CANCELLED else outcome


def _handed(
    job: Job, context: RunContext, fence: Workspace, failed: Outcome, turn: int, session: Session | None
) -> Outcome:
    message = f"{failed.reason}; handed to an agent ({turn} of {job.step.repair})"
    context.events.add("warning", **job.where, message=message)
    repaired = call.call_agent(job, context, turn, role="repair", trouble=failed.text, session=session)
    repaired = job_runner.accept_result(job, context, fence, repaired, turn, turn, unfinished=True)
    if repaired.ok:
        with context.guard:
            fence.keep(job)
    return repaired


def _run_with_retries(job: Job, context: RunContext, fence: Workspace, attempt: int) -> Outcome:
    """Run the command, with retries if the step itself sets them (a failure then counts as transient). `retry` in defaults
    and settings applies to agents."""
    outcome = _command(job, context, fence, attempt)
    if job.step.again is None or not context.settings.retry_enabled:
        return outcome
    for turn in range(1, job.step.again.attempts + 1):
        if outcome.ok or outcome.status is Status.CANCELLED:
            break
        wait = rate_limits.backoff_seconds(job.step.again, turn)
        reason = outcome.reason.partition("\n")[0]
        context.events.add("retry", **job.where, attempt=turn, reason=reason, wait=round(wait, 3))
        if not rate_limits.sleep(wait):
            return Outcome(Status.CANCELLED, "interrupted while waiting for the next attempt")
        outcome = _command(job, context, fence, attempt)
    return outcome


def _command(job: Job, context: RunContext, fence: Workspace, attempt: int) -> Outcome:
    """With `writes` the command is limited to those paths, which belong to the step; else what it writes is left alone."""
    if not fence.watches(job) or job.step.writes is not None:
        return _run(job, context, attempt)
    with job_runner.by_command(job, context, fence, check=False):
        return _run(job, context, attempt)


def _run(job: Job, context: RunContext, attempt: int) -> Outcome:
    step = job.step
    params = context.params_of(step)
    argv = tuple(fingerprint.substitute(word, params) for word in step.run)
    argv = argv or ("sh", "-c", fingerprint.substitute(step.shell, params))
    log = jobs.unused_log_path(job, context, attempt) if step.again else jobs.log_path(job, context, attempt)
    jobs.begin_log(log, context)
    command = Command(argv, env=context.step_environment(step.id, job.makes or None), cwd=str(context.root))
    tick = jobs.heartbeat(job, context, log)
    result = context.place.run(command, log, log, jobs.job_timeout(job, context), tick)
    jobs.end_log(log, context)
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    if result.code == 0 and not result.stopped:
        return Outcome(Status.DONE, text=process.tail(log) if step.routes or step.from_text else "")
    words = process.explain(result, argv)
    last = process.tail(log, 1500)
    status = Status.TIMEOUT if result.stopped else Status.FAILED
    steps: tuple[Next, ...] = (next_steps.resume(context),)
    if os.path.exists(log):
        steps = next_steps.show_logs_then_resume(step.id, context, "shows the full output")
    lines = [f"    {line}" for line in last.strip().splitlines()[-12:]]
    return Outcome(status, "\n".join((words, *lines)), text=f"{words}\n{last}", next=steps)
