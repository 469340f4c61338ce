"""A step done by an agent: it reads inputs and makes artifacts, which are checked and committed."""

from __future__ import annotations

from doflow.agents import call
from doflow.engine.jobs import job_runner
from doflow.flow.model import Outcome, Step
from doflow.guard import stale_files
from doflow.guard.fence.fence import Fence
from doflow.runs.context import RunContext
from doflow.runs.job import Job


def run(step: Step, context: RunContext, fence: Fence) -> Outcome:
    wanted = job(step, context)
    outcome = job_runner.run_job(wanted, context, fence, call.call_agent)
    if outcome.ok and not context.files.task_lists.isdisjoint(wanted.makes):
        _list(wanted, context)
    return outcome


def _list(done: Job, context: RunContext) -> None:
    """Store the checklist of a new task list for the agents of its phases."""
    path = next(path for path in done.makes if path in context.files.task_lists)
    stale_files.write(context, stale_files.checklist(context.files.text(path) or ""))


def job(step: Step, context: RunContext) -> Job:
    makes = tuple(context.files.path(said) for said in step.makes)
    writes = tuple(glob if "/" not in glob or glob.startswith("/") else f"/{glob}" for glob in step.writes or ())
    return Job(step, context.key(step), makes, writes)
