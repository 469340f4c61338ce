"""How a job can end short of success: in words that say what happened, where, and what to type next."""

from __future__ import annotations

import os
from typing import Any

from doflow.flow.model import Outcome, Status
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util.records import replace


def in_the_way(job: Job, world: World, edited: tuple[str, ...]) -> Outcome:
    names = ", ".join(edited)
    name = job.step.id
    hint = f"doflow adopt {name}   keeps your text   or   {world.again} --force={name}   rebuilds it"
    return Outcome(Status.PAUSED, f"{name} is to be done again, but {names} carries an edit by hand", hint)


def broken(job: Job, world: World, trouble: str, denied: tuple[str, ...] = ()) -> Outcome:
    """Refused, rather than failed: it was kept from writing something, and the artifact is not there."""
    hint = f"doflow logs {job.step.id} shows what the agent said; then: {world.again}"
    reason = f"{job.name} did not keep its contract: {trouble}"
    if not denied:
        return Outcome(Status.FAILED, reason, hint)
    missing = any(not world.digest(path) for path in job.makes)
    told = "; ".join(denied)
    return Outcome(Status.REFUSED if missing else Status.FAILED, f"{reason}; on the way it was refused: {told}", hint)


def strayed(
    job: Job, world: World, strays: tuple[str, ...], mine: tuple[str, ...], beside: tuple[str, ...], held: bool
) -> Outcome:
    """What it wrote elsewhere is put back; an artifact that keeps its contract is `held` for the person to take."""
    names = ", ".join(strays[:5]) + (f" and {len(strays) - 5} more" if len(strays) > 5 else "")
    who = f"{job.name}, or a step at work beside it ({', '.join(beside[:5])})," if beside else job.name
    reason = f"{who} wrote where it may not: {names}"
    hint = f"that is put back as it was and kept: doflow quarantine list{_leave(job, world, strays)}"
    if held:
        hint += f"\n  {', '.join(job.makes)} is fine: doflow adopt {job.step.id}   takes it without another call"
    return Outcome(Status.REFUSED, reason, hint, held=held, files=mine if held else ())


def _leave(job: Job, world: World, strays: tuple[str, ...]) -> str:
    """Whether and how a path of each kind could be allowed; one line for each."""
    from doflow.guard.fence.scope import Scope

    scope = Scope(job, world)
    first = {_bar(_foreign(world, path) or scope.bar(path), job): path for path in reversed(strays)}
    made = {path: found.step for path, found in world.book.artifacts.items()}
    return "".join(
        f"\n  {_WAYS[bar].format(path=path, step=made.get(path) or 'STEP')}" for bar, path in sorted(first.items())
    )


def _foreign(world: World, path: str) -> str:
    """`foreign` for a path in a repository of its own, a submodule for instance."""
    parts = path.split("/")[:-1]
    above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return "foreign" if any(os.path.lexists(world.root / folder / ".git") for folder in above) else ""


def _bar(bar: str, job: Job) -> str:
    return "fixer" if bar == "writes" and job.step.kind == "review" else bar


_WAYS = {
    "always": "{path}: no flow can allow it, for git, doflow or an agent program goes by it; if it must change, change it "
    "yourself while nothing runs",
    "fixer": "{path}: a fixer may change what is reviewed and nothing else",
    "foreign": "{path} is in a repository of its own, which no step changes",
    "made": "{path} belongs to {step}, which made it: doflow reject {step} --note '…' has it revised, or edit it yourself",
    "protect": "{path} is named by `protect:`; take it out there to let agents change it",
    "writes": "`writes:` of the step in the flow would allow {path}",
}


def hinted(outcome: Outcome, world: World) -> Outcome:
    if outcome.status is not Status.RATE_LIMITED or " or later: " in outcome.hint:
        return outcome
    when = f"at {outcome.resume_at} or later: {world.again}"
    return replace(outcome, hint=f"{when}\n  {outcome.hint}" if outcome.hint else when)


def leftovers(outcome: Outcome, left: tuple[str, ...]) -> Outcome:
    if not left:
        return outcome
    names = ", ".join(left[:3]) + (" …" if len(left) > 3 else "")
    kept = f"what it left ({names}) is kept: doflow quarantine list"
    return replace(outcome, hint=f"{outcome.hint}\n  {kept}" if outcome.hint else kept)


def told(job: Job, world: World, outcome: Outcome) -> None:
    """Write down how a job ended that did not succeed. A pause is not an end: it goes on from there."""
    about: dict[str, Any] = {**job.where, "message": outcome.reason, "hint": outcome.hint}
    if outcome.status is Status.RATE_LIMITED:
        world.ledger.add("rate_limited", **about, resumeAt=outcome.resume_at)
    elif outcome.status is Status.PAUSED:
        world.ledger.add("paused", **about)
    elif outcome.status is Status.CANCELLED:
        world.ledger.add("stopped", **job.where, held=outcome.held)
    else:
        kept = (
            {path: world.digest(path) for path in (*job.makes, *outcome.files)}
            if outcome.status is Status.REFUSED and outcome.held
            else {}
        )
        world.book.kept.update(kept)
        world.ledger.add("error", **about, status=outcome.status.value, held=outcome.held, kept=kept)
