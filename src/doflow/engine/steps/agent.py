"""A step done by an agent: it reads inputs and makes artifacts, which are checked and committed."""

from __future__ import annotations

from doflow.agents import call
from doflow.engine.jobs import job_runner
from doflow.flow.model import Outcome, Step
from doflow.guard import stale_files
from doflow.guard.workspace.interface import Workspace
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job


def run(step: Step, context: RunContext, fence: Workspace) -> Outcome:
    wanted = job(step, context)
    outcome = job_runner.run_job(wanted, context, fence, call.call_agent)
    lists = [path for path in wanted.makes if path in context.files.task_lists]
    if outcome.ok and lists:  # store the checklist for the agents of its phases
        stale_files.write(context, stale_files.checklist(context.files.text(lists[0]) or ""))
    return outcome


def job(step: Step, context: RunContext) -> Job:
    makes = tuple(context.files.path(said) for said in step.makes)
    writes = tuple(glob if "/" not in glob or glob.startswith("/") else f"/{glob}" for glob in step.writes or ())
    return Job(step, context.key(step), makes, writes)
