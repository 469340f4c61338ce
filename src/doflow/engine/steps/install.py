"""Installing a draft: doflow writes the files that no agent may write, from an agent's draft."""

from __future__ import annotations

from doflow.engine.jobs import job_runner
from doflow.flow import backlog, markdown
from doflow.flow.model import Outcome, Status, Step
from doflow.guard import stale_files
from doflow.guard.workspace.interface import Workspace
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next


def run(step: Step, context: RunContext, fence: Workspace) -> Outcome:
    path = context.files.path(step.makes[0])
    outcome = job_runner.run_job(Job(step, context.key(step), (path,), ()), context, fence, _install)
    if outcome.ok and path in context.files.task_lists and markdown.is_backlog(path):
        found = backlog.subtask_phases(context.files.text(path) or "", path)
        stale_files.write(context, [f"- [ ] {phase.number} {phase.title}" for phase in found])
    return outcome


def _install(job: Job, context: RunContext, attempt: int) -> Outcome:
    draft = context.files.path(job.step.reads[0].path)
    text = context.files.text(draft)
    if text is None:
        return Outcome(Status.FAILED, f"{draft} does not exist", next=(Next(("doflow", "why", job.step.id)),))
    context.place.write(job.makes[0], text.encode("utf-8", "surrogateescape"))
    return Outcome(Status.DONE)
