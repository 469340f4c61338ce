"""Running a job: start, attempt, record the result, check and repair, complete (lock file, commit, event log).

The order of writes makes a job resumable: the next start completes whatever is missing. After `returned` no agent call
is repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from doflow.agents import call, rate_limits
from doflow.engine import checks
from doflow.engine.jobs import agent_results, commit, outcomes
from doflow.flow.model import Outcome, Status
from doflow.guard import quarantine
from doflow.guard.workspace.interface import Workspace
from doflow.runs import fingerprint, freshness
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next
from doflow.util.process import runner

#: outcomes of a call that mean: try again later
WAITING = frozenset({Status.RATE_LIMITED, Status.PAUSED, Status.CANCELLED, Status.AUTH})

Produce = Callable[[Job, RunContext, int], Outcome]


class ReturnedResult(NamedTuple):
    """A result from an earlier process, the agent's final answer, and what is wrong with it."""

    entry: Mapping[str, Any]
    outcome: Outcome
    trouble: str = ""


def run_job(job: Job, context: RunContext, fence: Workspace, produce: Produce) -> Outcome:
    """Run a job, or finish what an earlier process started."""

    def attempt() -> Outcome:
        seen = fence.see(job)
        entry = agent_results.find_returned(job, seen)
        if entry is not None:
            return _resumed(job, seen, fence, produce, entry)
        return _refusal(job, context) or _attempts(job, context, fence, produce)

    outcome = wait_for_limits(job, context, attempt)
    if outcome.ok:
        with context.guard:  # no other job commits in between
            outcome = fence.take_over(job) or outcome
            if outcome.ok:
                outcome = commit.complete_job(job, context, outcome)
    if not outcome.ok:
        outcomes.log_outcome(job, fence.see(job), outcome)
    return outcome


def wait_for_limits(job: Job, context: RunContext, attempt: Callable[[], Outcome]) -> Outcome:
    """Repeat while rate limited and the settings allow waiting, or another agent can take over."""
    waiting = rate_limits.RateLimitWait(job, context)
    ended: Outcome | None = None
    while ended is None:
        ended = waiting.over(attempt())
    return ended if ended.ok else outcomes.with_resume_time(ended, context)


def _resumed(job: Job, context: RunContext, fence: Workspace, produce: Produce, entry: Mapping[str, Any]) -> Outcome:
    """The result is paid for: check it and, if it fails, hand it back for repair; the call is not repeated."""
    outcome = agent_results.returned_outcome(entry)
    if entry.get("unfinished") or entry.get("unseen"):
        return _attempts(job, context, fence, produce, ReturnedResult(entry, outcome))
    if entry.get("edited"):
        names = ", ".join(entry["edited"])
        message = f"{names}: changed since the agent of {job.name} returned; included in its result"
        context.events.add("warning", **job.where, message=message)
    context.events.add("resumed", **job.where)
    trouble = check_returned_result(job, context, fence, entry, outcome)
    if not trouble:
        return outcome
    if runner.stopping():
        return _interrupted(job, context)
    if not fence.watches(job):
        left = quarantine.failed(context, job, dict.fromkeys(job.makes, ""))
        return outcomes.with_leftovers(outcomes.check_failed(job, context, trouble), left)
    return _attempts(job, context, fence, produce, ReturnedResult(entry, outcome, trouble))


def quarantine_returned(job: Job, context: RunContext, fence: Workspace) -> None:
    """Move the result of an outdated version of the job to quarantine, so that the next call starts without it."""
    entry = {**context.record.returned[job.name], "files": agent_results.unchanged_files(job, context)}
    with context.guard:
        fence.enter(job, entry)
        try:
            left = fence.undo(job, f"made by an earlier version of {job.name}")
        finally:
            fence.leave(job)
        context.record.discard_returned(job.name)
    if left:
        message = f"{', '.join(left)}: made by an earlier version of {job.name}; moved to quarantine"
        context.events.add("warning", **job.where, message=message, hint="doflow quarantine list")


def _refusal(job: Job, context: RunContext) -> Outcome | None:
    missing = (*job.key.missing, *fingerprint.read_digests(job.step.needs, context.files)[1])
    if missing:
        why = Next(("doflow", "why", job.step.id), does="shows what it depends on")
        return outcomes.missing_inputs(job, missing, why, Next(why="create the file, or run the step that makes it"))
    if job.phase is None and job.step.id not in context.options.force:
        edited = freshness.manually_edited_files(job.step, context) if job.step.makes else ()
        if edited:
            return outcomes.edits_in_the_way(job, context, edited)
    return None


def _attempts(
    job: Job, context: RunContext, fence: Workspace, produce: Produce, again: ReturnedResult | None = None
) -> Outcome:
    seen: dict[str, int] = {}
    attempt = 0
    while True:
        attempt += 1
        outcome = _attempt(job, context, fence, produce, attempt, again if attempt == 1 else None)
        seen[outcome.reason] = seen.get(outcome.reason, 0) + 1
        if outcome.ok or not outcome.transient:
            return outcome
        retry = rate_limits.retry_policy(job, context)
        if attempt > retry.attempts:
            return outcome
        if seen[outcome.reason] > 2:
            return replace(outcome, reason=f"{outcome.reason} (failed 3 times with the same error; giving up)")
        wait = rate_limits.backoff_seconds(retry, attempt)
        context.events.add("retry", **job.where, attempt=attempt, reason=outcome.reason, wait=round(wait, 3))
        if not rate_limits.sleep(wait):
            return Outcome(Status.CANCELLED, "interrupted while waiting for the next attempt")


def _attempt(
    job: Job, context: RunContext, fence: Workspace, produce: Produce, attempt: int, again: ReturnedResult | None
) -> Outcome:
    """One attempt from a snapshot; if it fails, the working tree is restored and what it left goes to quarantine."""
    watched = fence.watches(job)
    before = {path: context.files.digest(path) for path in job.makes}
    if watched:
        with context.guard:
            fence.enter(job, again.entry if again else None)
            context = fence.see(job)
    for path in job.makes:
        context.place.make_folder(os.path.dirname(path))
    event = "phase_starting" if job.phase else "step_starting"
    title: dict[str, Any] = {"title": job.phase.title, "of": job.of} if job.phase else {}
    if again:
        title["again"] = True
    else:
        context.record.discard_returned(job.name)
    context.events.add(event, durable=job.paid, **job.where, **title, attempt=attempt, key=job.key.key, makes=before)
    try:
        outcome = _produced(job, context, fence, produce, attempt, again)
        if watched and not outcome.ok and not outcome.held:
            with context.guard:
                left = fence.undo(job, f"left by a failed attempt of {job.name}")
            outcome = outcomes.with_leftovers(outcome, left)
        elif not watched and not outcome.ok and not outcome.held:
            outcome = outcomes.with_leftovers(outcome, quarantine.failed(context, job, before))
    except BaseException:
        fence.abandon(job)
        raise
    if watched:
        with context.guard:
            fence.leave(job)
    return outcome


def _produced(
    job: Job, context: RunContext, fence: Workspace, produce: Produce, attempt: int, again: ReturnedResult | None
) -> Outcome:
    """Record the agent's result, check it, and hand it back for repair as often as the step allows."""
    if again and not again.entry.get("unfinished") and not again.entry.get("unseen"):
        outcome, trouble = again.outcome, again.trouble
        session, turns = call.session_from_entry(again.entry), int(again.entry.get("repairs", 0))
    else:
        unseen = again is not None and again.entry.get("unseen") and not again.entry.get("unfinished")
        made = again.outcome if again and unseen else produce(job, context, attempt)
        outcome = accept_result(job, context, fence, made, attempt)
        trouble, session, turns = check_result(job, context, fence, outcome), call.session_of(outcome), 0
    while trouble:
        if runner.stopping():
            return _interrupted(job, context)
        if not job.paid or turns >= job.step.repair:
            return outcomes.check_failed(job, context, trouble, outcome.denied)
        turns += 1
        with context.guard:
            fence.keep(job)
        first = trouble.strip().partition("\n")[0]
        context.events.add("warning", **job.where, message=f"check failed, handed back to the agent: {first}")
        repaired = call.call_agent(job, context, attempt, role="repair", trouble=trouble, session=session)
        outcome = accept_result(job, context, fence, repaired, attempt, turns)
        if outcome.status in WAITING:  # the repair did not happen: keep the paid result for later
            return postpone(job, context, fence, outcome)
        trouble, session = check_result(job, context, fence, outcome), call.session_of(outcome)
    return outcome


def postpone(job: Job, context: RunContext, fence: Workspace, outcome: Outcome) -> Outcome:
    """Restore the returned result; what an unfinished repair made of it goes to quarantine."""
    with context.guard:
        left = fence.back(job)
    return outcomes.with_leftovers(replace(outcome, held=agent_results.find_returned(job, context) is not None), left)


def _interrupted(job: Job, context: RunContext) -> Outcome:
    """An interrupted check says nothing: the next command checks again."""
    return Outcome(Status.CANCELLED, "interrupted", held=agent_results.find_returned(job, context) is not None)


def accept_result(
    job: Job, context: RunContext, fence: Workspace, outcome: Outcome, attempt: int, repairs: int = 0,
    unfinished: bool = False,
) -> Outcome:  # fmt: skip
    """Record the result as `returned` if nothing out of scope was written. After this no call is repeated."""
    if not outcome.ok:
        return outcome
    with context.guard:
        about: dict[str, Any] = {"repairs": repairs, "unfinished": unfinished, "layers": fence.layers(job)}
        if fence.layers(job) and (job.paid or job.step.repair):  # the call is over, whatever is found in what it wrote
            agent_results.record_returned(job, context, {}, outcome, attempt, **about, unseen=True)
        changes, strays = fence.look(job) if fence.watches(job) else ((), ())
        if job.task and changes and not strays:
            agent_results.tick_task(job, context)
            changes, strays = fence.look(job)
        files = agent_results.changed_files(job, context, changes)
        if strays:
            checked = replace(job, makes=()) if unfinished else job
            held = bool(checked.makes) and not check_artifacts(checked, context, fence)
            if fence.layers(job):  # nothing of it is in the project: what is in scope waits for the user
                held = held or (job.phase is not None and bool(changes))
                agent_results.hold(job, context, files if held else {}, outcome, attempt, fence.layers(job))
            return outcomes.out_of_scope(checked, context, strays, tuple(files), fence.beside(job), held)
        if job.phase and not changes:
            if left := agent_results.open_tasks(job, context):
                return outcomes.nothing_done(job, context, left)
            message = f"the agent of {job.name} finished without changing any file"
            context.events.add("warning", **job.where, message=message)
        if job.commits or files:
            about |= {"work": fence.work(job) if job.watched else "", "layers": fence.layers(job)}
            agent_results.record_returned(job, context, files, outcome, attempt, **about)
    return outcome


def check_result(job: Job, context: RunContext, fence: Workspace, outcome: Outcome) -> str:
    """What is wrong with the artifacts or the answer; '' = nothing."""
    if not outcome.ok:
        return ""
    trouble = check_artifacts(job, context, fence)
    if trouble or not job.step.routes or outcome.marker:
        return trouble
    return commit.marker_problem(job.step, commit.find_markers(job.step, context, outcome.text))


def check_returned_result(
    job: Job, context: RunContext, fence: Workspace, entry: Mapping[str, Any], outcome: Outcome
) -> str:
    """Check a result of an earlier process; a check command is watched here, too."""
    if not (fence.watches(job) and (job.step.check.run or job.step.check.tests)):
        return check_result(job, context, fence, outcome)
    with context.guard:
        fence.enter(job, entry)
    try:
        trouble = check_result(job, context, fence, outcome)
    except BaseException:
        fence.abandon(job)
        raise
    with context.guard:
        fence.leave(job)
    return trouble


def check_artifacts(job: Job, context: RunContext, fence: Workspace) -> str:
    """What is wrong with the artifacts; '' = nothing."""
    if not (fence.watches(job) and (job.step.check.run or job.step.check.tests)):
        return checks.problems(job.step, job.makes, context)
    with by_command(job, context, fence, check=True):
        return checks.problems(job.step, job.makes, context)


@contextmanager
def by_command(job: Job, context: RunContext, fence: Workspace, check: bool) -> Iterator[None]:
    """While a command of the flow runs: what it writes is not attributed to the agent."""
    with context.guard:
        fence.command_begins(job, check)
    try:
        yield
    finally:
        with context.guard:
            fence.command_ended(job)
            agent_results.update_returned(job, context, fence.layers(job))
