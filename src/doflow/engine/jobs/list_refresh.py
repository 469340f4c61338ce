"""A new version of a run's task list, proposed by an agent that may write nothing; a person decides about it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from doflow.agents import call, prompt_text, selection
from doflow.engine import checks
from doflow.engine.jobs import job_runner, outcomes
from doflow.flow import task_lists
from doflow.flow.model import Check, Outcome, Status, Step
from doflow.guard.workspace.interface import Workspace
from doflow.runs import fingerprint, jobs
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next

_ATTEMPTS = 2


def propose_list(step: Step, context: RunContext, fence: Workspace, text: str) -> Outcome:
    """The new list as the outcome's text. An answer that takes a ticked task away is handed back once, with the reason."""
    job = _job(step, context)
    selection.check_agents(context)
    form, trouble = _form(context.phases(step), context), ""
    for _ in range(_ATTEMPTS):
        prompt = _prompt(job, context, text, form, trouble)
        outcome = job_runner.wait_for_limits(job, context, partial(_ask, job, context, fence, prompt))
        if not outcome.ok:
            return outcome
        new, problems = task_lists.revise(text, outcome.text)
        problems = problems or _faults(text, new, form)
        if not problems:
            return replace(outcome, text=new)
        trouble = "\n".join(problems)
    logs = Next(("doflow", "logs", step.id, "--role", "refresh"), does="shows its answer")
    lines = "".join(f"\n  {problem}" for problem in trouble.splitlines())
    return Outcome(Status.REFUSED, f"the new list was refused:{lines}", next=(logs,))


def material_digest(step: Step, context: RunContext, text: str) -> str:
    """The list and the inputs that a proposal was made from."""
    reads = _job(step, context).key.reads
    return fingerprint.short_hash([context.phases(step), text, *sorted(f"{path} {reads[path]}" for path in reads)], 64)


def _job(step: Step, context: RunContext) -> Job:
    plain = replace(step, prompt=None, makes=(), routes=(), check=Check(), repair=0, machine="")
    return Job(plain, context.key(step), (), ())


def _prompt(job: Job, context: RunContext, text: str, form: str, trouble: str) -> str:
    path = context.phases(job.step)
    inputs = [given for given in call.step_inputs(job, context) if given.path != path]
    return prompt_text.refresh_prompt(context.run.dir, path, text, inputs, form, trouble)


def _ask(job: Job, context: RunContext, fence: Workspace, prompt: str) -> Outcome:
    """One call. Whatever it writes is reverted, and its answer isn't used."""
    log = jobs.unused_log_path(job, context, 1, "refresh")
    with context.guard:
        fence.enter(job)
        seen = fence.see(job)
    try:
        ask = call.build_ask(job, context, selection.find_profile(job.step, context), 1, "refresh", "")
        outcome = call.send(replace(ask, prompt=prompt, read_only=True), job, seen, log)
        with context.guard:
            strays = fence.look(job)[1]
    finally:
        with context.guard:
            fence.leave(job)
    if not strays:
        return outcome
    kept = Next(outcomes.QUARANTINE, "reverted, a copy is in quarantine; its answer is discarded")
    reason = f"the agent, which may write nothing, modified {', '.join(strays[:5])}"
    return Outcome(Status.REFUSED, reason, next=(kept,))


def _form(path: str, context: RunContext) -> str:
    """The form that the list must have: that of the step that makes it, unless a person adopted another."""
    maker = next((step for step in context.flow.steps if path in map(context.files.path, step.makes)), None)
    return maker.check.tasks if maker and not checks.is_adopted_list(path, context) else ""


def _faults(old: str, new: str, form: str) -> tuple[str, ...]:
    """What the new list has of problems that the old one had not."""
    if not form:
        return ()
    before = {fault.message for fault in checks.task_list_faults(old.removeprefix("\ufeff"), form)[0]}
    faults = checks.task_list_faults(new.removeprefix("\ufeff"), form)[0]
    return tuple(f"line {fault.line}: {fault.message}" for fault in faults if fault.message not in before)
