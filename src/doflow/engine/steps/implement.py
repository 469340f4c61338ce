"""Code in phases: one agent call and one commit per `## Phase N` of the task list."""

from __future__ import annotations

from doflow.agents import call
from doflow.engine import checks
from doflow.engine.jobs import agent_results, commit, job_runner, outcomes
from doflow.flow import markdown, task_lists
from doflow.flow.model import Outcome, Status, Step
from doflow.git import history
from doflow.guard import early_code
from doflow.guard.workspace.interface import Workspace
from doflow.runs import freshness, next_steps, session_layout
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.lockfile import StepRecord
from doflow.util import timestamps
from doflow.util.errors import DoflowError, Undecided, UsageError
from doflow.util.hints import Next

#: bytecode of dodo.py, in case it was committed
_OURS = "__pycache__/dodo."


def run(step: Step, number: str, context: RunContext, fence: Workspace) -> Outcome:
    """One phase. Tracked files outside the run's folder must be clean: they would be committed with it."""
    keyed = freshness.phase_keys(step, context)
    found = [place for place, (phase, _) in enumerate(keyed) if phase.number == number]
    if not found:
        path = context.phases(step)
        steps = (Next(("doit", "list", "--all")), next_steps.resume(context, link="then"))
        return Outcome(Status.FAILED, f"{path} no longer has a phase {number}", next=steps)
    if problem := find_work_list_problem(step, context):  # edited since the previous phase
        raise problem
    phase, key = keyed[found[0]]
    if number == "all":
        message = f"{context.phases(step)} has no `## Phase N: title`: implementing all of it in one call"
        context.events.add("warning", step=step.id, message=message)
    task = context.options.task
    subject = f"{task.rpartition('/')[2]}: {phase.title}" if task and not step.commit else ""
    last = found[0] == len(keyed) - 1
    job = Job(step, key, (), step.writes, phase, last=last, subject=subject, of=len(keyed), task=task)
    if agent_results.find_returned(job, fence.see(job)) is None:
        paused = _unclean(job, context) if fence.kind_of(job) == "in-place" else None
        if paused is not None:
            outcomes.log_outcome(job, context, paused)
            return paused
        if job.name in context.record.returned:
            job_runner.quarantine_returned(job, context, fence)
        if not found[0] and (early := early_code.quarantine_early_code(context)):
            early_code.warn_early_code(context, early, step.id)
        _mark(job, context, "Implementing")
    outcome = job_runner.run_job(job, context, fence, call.call_agent)
    if outcome.status not in (Status.DONE, Status.PAUSED, Status.RATE_LIMITED, Status.CANCELLED):
        _mark(job, context, "Failed")
    if task and outcome.ok:
        _say_what_is_open(step, context)
    return outcome


def _say_what_is_open(step: Step, context: RunContext) -> None:
    """After a task alone: a phase whose tasks were all done alone is done; the other open tasks are named."""
    steps = context.record.steps
    for phase, key in freshness.phase_keys(step, context, every=True):
        tasks = [task for task in task_lists.parse_task_list(phase.text).tasks if not task.optional and not task.head]
        names = [f"{step.id}:{task_lists.task_section(phase.text, task).number}" for task in tasks]
        if f"{step.id}:{phase.number}" not in steps and tasks and all(name in steps for name in names):
            record = StepRecord(key.key, key.parts, by=steps[names[-1]].by, at=timestamps.now())
            context.complete(f"{step.id}:{phase.number}", record, {})
            commit.commit_lock(context, f"Finish phase {phase.number}: {phase.title}", (), step.id)
    path = context.phases(step)
    left = [task for task in task_lists.parse_task_list(context.files.text(path) or "").tasks if not task.done]
    shown = ", ".join(task.id for task in left[:_SHOWN]) + (
        f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    )
    message = f"open in {path}: {shown}" if left else f"nothing is open in {path}"
    context.events.add("warning", step=step.id, message=message)


def _mark(job: Job, context: RunContext, status: str) -> None:
    """Update the status of a subtask, if the phases come from a backlog."""
    if job.phase and markdown.is_backlog(job.step.phases):
        commit.update_backlog_statuses(job.step, context, job.phase.number, status)


def _unclean(job: Job, context: RunContext) -> Outcome | None:
    folders = tuple(folder for folder in (context.run.dir, session_layout.parent_session(context.run.dir)) if folder)
    known = {*agent_results.unchanged_files(job, context)}
    if context.flow.in_sessions:  # the user's file, which agents may not change
        known.add(context.params.get("prd", ""))
    outputs = context.record.command_outputs  # written by a command, not by the user
    dirty = [
        name for name in history.dirty_files(context.git, folders)
        if name not in known and not name.startswith(_OURS) and outputs.get(name) != context.files.digest(name)
    ]  # fmt: skip
    tasks = call.task_list(job, context)
    if tasks in dirty and _is_only_ticked(tasks, context):
        dirty.remove(tasks)
    if not dirty:
        return None
    names = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
    reason = f"{job.name} is waiting: uncommitted changes in {names}, and a phase commits what it changes"
    return Outcome(
        Status.PAUSED, reason, "commit or stash your changes", next=(next_steps.resume(context, link="then"),)
    )


def _is_only_ticked(path: str, context: RunContext) -> bool:
    """Whether a task list differs from the committed one in its boxes alone."""
    held = history.file_at(context.git, "HEAD", f"{context.prefix}{path}") or b""
    was, now = held.decode("utf-8", "surrogateescape"), context.files.text(path) or ""
    return markdown.untick_boxes(was).splitlines() == markdown.untick_boxes(now).splitlines()


_SHOWN = 10


def find_work_list_problem(step: Step, context: RunContext) -> DoflowError | None:
    """Why the phases or items of this step cannot be run; None = they can, or their list does not exist yet."""
    if step.kind == "implement":
        return None if context.frozen else _phases(step, context)
    try:
        context.items(step)
    except DoflowError as error:
        return error
    return None


def _phases(step: Step, context: RunContext) -> DoflowError | None:
    path = context.phases(step)
    text = context.files.text(path)
    if text is None or markdown.is_backlog(path):
        return None
    maker = next((found for found in context.flow.steps if path in map(context.files.path, found.makes)), None)
    form = maker.check.tasks if maker else ""
    if not text.strip():
        refusal = Undecided if form else UsageError
        return refusal(f"{step.id} has nothing to do: {path} is empty", f"fix {path}", _way_out(maker, context))
    checked = form and not checks.is_adopted_list(path, context)
    faults = checks.task_list_faults(text, form)[0] if checked else ()
    if faults and maker and not freshness.phases_are_fresh(step, context):  # else no agent is called
        lines = [f"  {path}:{fault.line}: {fault.message}" for fault in faults[:_SHOWN]]
        lines += [f"  and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        message = f"{step.id} is waiting: its task list fails the checks of {maker.id}\n" + "\n".join(lines)
        adopt = Next(("doflow", "adopt", maker.id, "--anyway"), does="takes it as it is", link="or")
        return Undecided(message, f"fix {path}", (*_way_out(maker, context), adopt))
    return None


def _way_out(maker: Step | None, context: RunContext) -> tuple[Next, ...]:
    go = next_steps.resume_now(context, link="then")
    if maker is None:
        return (go,)
    return go, next_steps.resume_now(context, f"--force={maker.id}", does="regenerates it", link="or")
