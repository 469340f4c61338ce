"""Unsuccessful outcomes of a job: what happened, where, and the next command."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from doflow.flow.model import Outcome, Status
from doflow.guard.fence.scope import Scope
from doflow.runs import next_steps
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next

_SHOWN = 10
QUARANTINE = ("doflow", "quarantine", "list")


def missing_inputs(job: Job, missing: tuple[str, ...], *steps: Next) -> Outcome:
    reason = f"{job.step.id}: missing input{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
    return Outcome(Status.FAILED, reason, next=steps)


def edits_in_the_way(job: Job, context: RunContext, edited: tuple[str, ...]) -> Outcome:
    name = job.step.id
    keep = Next(("doflow", "adopt", name), does="keeps your edits")
    rebuild = next_steps.resume(context, f"--force={name}", does="regenerates it", link="or")
    reason = f"{name} is out of date, but {', '.join(edited)} has manual edits"
    return Outcome(Status.PAUSED, reason, next=(keep, rebuild))


def check_failed(job: Job, context: RunContext, trouble: str, denied: tuple[str, ...] = ()) -> Outcome:
    """Refused rather than failed if a write was denied and the artifact is missing."""
    steps = next_steps.show_logs_then_resume(job.step.id, context, "shows the agent's output")
    reason = f"{job.name} failed its checks: {trouble}"
    if not denied:
        return Outcome(Status.FAILED, reason, next=steps)
    missing = any(not context.files.digest(path) for path in job.makes)
    status = Status.REFUSED if missing else Status.FAILED
    return Outcome(status, f"{reason}; it was also denied: {'; '.join(denied)}", next=steps)


def nothing_done(job: Job, context: RunContext, left: tuple[str, ...]) -> Outcome:
    """A phase without any change and with open tasks is not done; only the user can say that nothing is left to do."""
    shown = "".join(f"\n    {task}" for task in left[:_SHOWN])
    more = f"\n    and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    many = f"{len(left)} task{'s' if len(left) > 1 else ''}"
    steps = (
        Next(("doflow", "logs", job.step.id), does="shows what it said"),
        next_steps.resume(context, does="calls the agent again", link="then"),
        Next(("doflow", "adopt", job.name, "--anyway"), "if nothing is left to do", "marks the phase as done", "or"),
    )
    return Outcome(Status.PAUSED, f"{job.name} changed no file and left {many} open:{shown}{more}", next=steps)


def out_of_scope(
    job: Job, context: RunContext, strays: tuple[str, ...], mine: tuple[str, ...], beside: tuple[str, ...], held: bool
) -> Outcome:
    """The changes out of scope were reverted; an artifact that passed its checks is `held` for the user to adopt."""
    names = ", ".join(strays[:5]) + (f" and {len(strays) - 5} more" if len(strays) > 5 else "")
    who = f"{job.name}, or a step running in parallel ({', '.join(beside[:5])})," if beside else job.name
    reason = f"{who} modified files outside its scope: {names}"
    steps = (Next(QUARANTINE, "reverted; a copy is in quarantine"), *_leave(job, context, strays))
    if held:
        what = f"{', '.join(job.makes)} passed its checks" if job.makes else "its other changes are kept"
        steps = (*steps, Next(("doflow", "adopt", job.name), what, "keeps it without another call"))
    return Outcome(Status.REFUSED, reason, held=held, files=mine if held else (), next=steps)


def _leave(job: Job, context: RunContext, strays: tuple[str, ...]) -> tuple[Next, ...]:
    """Whether and how each kind of path could be allowed; one line per kind."""
    scope = Scope(job, context)
    first = {_bar(path, scope, job, context): path for path in reversed(strays)}
    steps = []
    for bar, path in sorted(first.items()):
        if bar == "made":
            held = context.record.artifacts.get(path)
            maker = (held.step if held else "") or "STEP"
            reject = ("doflow", "reject", maker, "--note", "…")
            steps.append(Next(reject, f"{path} is an artifact of {maker}", "asks for a revision; or edit it yourself"))
        else:
            steps.append(Next(why=_WAYS[bar].format(path=path)))
    return tuple(steps)


def _bar(path: str, scope: Scope, job: Job, context: RunContext) -> str:
    """Why the path is out of scope; `foreign`: it is in a nested repository, such as a submodule."""
    if any(os.path.lexists(context.root / folder / ".git") for folder in PurePosixPath(path).parents[:-1]):
        return "foreign"
    bar = scope.bar(path)
    return "fixer" if bar == "writes" and job.step.kind == "review" else bar


_WAYS = {
    "always": "{path} is always protected because it controls git, doflow or the agent; edit it yourself while no run is "
    "active",
    "fixer": "{path}: a fixer may change only the reviewed files",
    "foreign": "{path} is in a nested repository, which steps may not change",
    "protect": "{path} is listed under `protect:`; remove it there to let agents change it",
    "writes": "add {path} to `writes:` of the step to allow it",
}


def with_resume_time(outcome: Outcome, context: RunContext) -> Outcome:
    """For a rate limit: add the command that continues, and from when."""
    if outcome.status is not Status.RATE_LIMITED or any(step.at for step in outcome.next):
        return outcome
    others = tuple(step for step in outcome.next if not step.runs_flow)
    return replace(outcome, next=(next_steps.resume(context, at=outcome.resume_at), *others))


def with_leftovers(outcome: Outcome, left: tuple[str, ...]) -> Outcome:
    if not left:
        return outcome
    names = ", ".join(left[:3]) + (" …" if len(left) > 3 else "")
    return replace(outcome, next=(*outcome.next, Next(QUARANTINE, f"what it left ({names}) is in quarantine")))


def log_outcome(job: Job, context: RunContext, outcome: Outcome) -> None:
    """Log the outcome of a job that did not succeed. A pause is not an end: the job continues later."""
    hint = next_steps.event_fields(outcome.hint, outcome.next, context)
    about: dict[str, Any] = {**job.where, "message": outcome.reason, **hint}
    if outcome.status is Status.RATE_LIMITED:
        context.events.add("rate_limited", **about, resumeAt=outcome.resume_at)
    elif outcome.status is Status.PAUSED:
        context.events.add("paused", **about)
    elif outcome.status is Status.CANCELLED:
        context.events.add("stopped", **job.where, held=outcome.held)
    else:
        held = (*job.makes, *outcome.files) if outcome.status is Status.REFUSED and outcome.held else ()
        kept = {path: context.files.digest(path) for path in held}
        context.record.hold_files(kept)
        context.events.add("error", **about, status=outcome.status.value, held=outcome.held, kept=kept)
