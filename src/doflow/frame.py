"""The frame around every job: begin, attempt, returned, check and repair, settle (lock, commit, done).

The order of writes is the resume: whatever is missing at the next start is made good from what is there. From
`returned` on nothing is paid again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doflow import endings, judge, keys, patience, sections, sessions, watching
from doflow.checks import registry as checks
from doflow.job import Job
from doflow.light import replace
from doflow.model import Outcome, Status
from doflow.patience import Patience
from doflow.sessions import Session
from doflow.settle import marker, settle
from doflow.world import World

if TYPE_CHECKING:
    from doflow.contents import Change
    from doflow.guards.fence import Fence

#: ends of a call that mean: not now
_WAITING = frozenset({Status.RATE_LIMITED, Status.PAUSED})

Produce = Callable[[Job, World, int], Outcome]
_LAST = 4_000_000


def perform(job: Job, world: World, fence: Fence, produce: Produce) -> Outcome:
    """Do a job, or finish what an earlier process began of it."""
    waiting = Patience(job, world)
    ended: Outcome | None = None
    while ended is None:
        entry = kept(job, world)
        if entry is not None:
            outcome = _resumed(job, world, fence, entry)
        else:
            outcome = _refusal(job, world) or _attempts(job, world, fence, produce)
        ended = waiting.over(outcome)
    outcome = ended
    if outcome.ok:
        outcome = settle(job, world, outcome)
    if not outcome.ok:
        outcome = endings.hinted(outcome, world)
        endings.told(job, world, outcome)
    return outcome


def changed_files(job: Job, world: World, mine: Sequence[Change]) -> dict[str, str]:
    """What a job has made or changed: path → digest ('' = deleted). `mine`: what the fence saw of it."""
    if job.watched:
        return {change.path: world.digest(change.path) for change in mine if change.path != _tasks(job, world)} | {
            path: world.digest(path) for path in (*job.makes, *_ticked(job, world))
        }
    return {path: world.digest(path) for path in job.makes}


def kept(job: Job, world: World) -> Mapping[str, Any] | None:
    """What an agent had returned before a crash, if all of it is still there, byte by byte."""
    entry = world.book.returned.get(job.name)
    if entry is None or entry.get("key") != job.key.key:
        return None
    files: Mapping[str, str] = entry.get("files", {})
    return None if any(world.digest(path) != digest for path, digest in files.items()) else entry


def _resumed(job: Job, world: World, fence: Fence, entry: Mapping[str, Any]) -> Outcome:
    """The result is paid: it is checked and, if that is not enough, handed back; it is not made again."""
    outcome = Outcome(Status.DONE, text=_text(entry), model=entry.get("model", ""), marker=entry.get("marker", ""),
                      agent=entry.get("agent", ""))  # fmt: skip
    trouble = problems(job, world, outcome)
    if not trouble:
        return outcome
    if not job.paid or not job.step.repair:
        left = fence.aside(job, dict.fromkeys(job.makes, ""))
        return endings.leftovers(endings.broken(job, world, trouble), left)
    session = sessions.told(entry)
    return _attempts(
        job, world, fence, lambda job, world, n: _hand_back(job, world, n, trouble, session if n < 2 else None)
    )


def _refusal(job: Job, world: World) -> Outcome | None:
    missing = (*job.key.missing, *keys.read_digests(job.step.needs, world.place)[1])
    if missing:
        names = ", ".join(missing)
        hint = f"doflow why {job.step.id} shows what it waits for; create the file, or run the step that makes it"
        return Outcome(Status.FAILED, f"{job.step.id} needs {names}, which does not exist", hint)
    if job.phase is None and job.step.id not in world.options.force:
        edited = judge.edited(job.step, world)
        if edited:
            return endings.in_the_way(job, world, edited)
    return None


def _attempts(job: Job, world: World, fence: Fence, produce: Produce) -> Outcome:
    retry = patience.retry(job, world)
    seen: dict[str, int] = {}
    attempt = 0
    while True:
        attempt += 1
        outcome = _attempt(job, world, fence, produce, attempt)
        seen[outcome.reason] = seen.get(outcome.reason, 0) + 1
        if outcome.ok or not outcome.transient or attempt > retry.attempts:
            return outcome
        if seen[outcome.reason] > 2:
            return replace(outcome, reason=f"{outcome.reason} (the same three times: not tried again)")
        wait = patience.backoff(retry, attempt)
        world.ledger.add("retry", **job.where, attempt=attempt, reason=outcome.reason, wait=round(wait, 3))
        if not patience.sleep(wait):
            return Outcome(Status.CANCELLED, "interrupted while waiting for the next attempt")


def _attempt(job: Job, world: World, fence: Fence, produce: Produce, attempt: int) -> Outcome:
    """One attempt from a snapshot; if it comes to nothing the tree is as it was, and what it left is kept aside."""
    watched = job.watched
    begun = {path: world.digest(path) for path in job.makes}
    for path in job.makes:
        (world.root / path).parent.mkdir(parents=True, exist_ok=True)
    if watched:
        with world.guard:
            fence.enter(job)
    event = "phase_starting" if job.phase else "step_starting"
    title = {"title": job.phase.title, "of": job.of} if job.phase else {}
    durable = job.paid
    world.ledger.add(event, durable=durable, **job.where, **title, attempt=attempt, key=job.key.key, makes=begun)
    try:
        outcome = _produced(job, world, fence, produce, attempt)
        if watched and not outcome.ok and not outcome.held:
            with world.guard:
                left = fence.undo(job, f"left by a failed attempt of {job.name}")
            outcome = endings.leftovers(outcome, left)
        elif not watched and not outcome.ok:
            outcome = endings.leftovers(outcome, fence.aside(job, begun))
    except BaseException:
        fence.abandon(job)
        raise
    if watched:
        with world.guard:
            fence.leave(job)
    return outcome


def _produced(job: Job, world: World, fence: Fence, produce: Produce, attempt: int) -> Outcome:
    """The agent's result, written down as soon as it is there, then held against the contract."""
    outcome = _accepted(job, world, fence, produce(job, world, attempt), attempt)
    for _ in range(job.step.repair if job.paid else 0):
        trouble = problems(job, world, outcome) if outcome.ok else ""
        if not trouble:
            return outcome
        mended = _hand_back(job, world, attempt, trouble, sessions.left(outcome))
        outcome = _accepted(job, world, fence, mended, attempt)
        if (
            outcome.status in _WAITING and kept(job, world) is not None
        ):  # nobody mended it: what is paid is kept for later
            with world.guard:
                fence.look(job)
            return replace(outcome, held=True)
    trouble = problems(job, world, outcome) if outcome.ok else ""
    return endings.broken(job, world, trouble, outcome.denied) if trouble else outcome


def _accepted(job: Job, world: World, fence: Fence, outcome: Outcome, attempt: int) -> Outcome:
    """Nothing outside of its scope was written: `returned`. From here on nothing is paid again."""
    if not outcome.ok:
        return outcome
    with world.guard:
        mine, strays = fence.look(job) if job.watched else ((), ())
        if strays:
            return endings.strayed(job, world, strays, tuple(changed_files(job, world, mine)))
        if job.phase and not mine:
            world.ledger.add("warning", **job.where, message=f"the agent of {job.name} is done and changed no file")
        made = changed_files(job, world, mine)
        if job.commits or made:
            _returned(job, world, made, outcome, attempt)
    return outcome


def _hand_back(job: Job, world: World, attempt: int, trouble: str, session: Session | None) -> Outcome:
    world.ledger.add("warning", **job.where, message=f"not yet right, handed back: {_first(trouble)}")

    from doflow import calling

    return calling.call(job, world, attempt, role="repair", trouble=trouble, session=session)


def problems(job: Job, world: World, outcome: Outcome) -> str:
    trouble = checks.problems(job.step, job.makes, world)
    if not trouble and job.step.routes and not outcome.marker and not marker(job, world, outcome.text):
        wanted = ", ".join(f"`{route.when}`" for route in job.step.routes)
        return f"none of the lines {wanted} stands in the artifact or at the end of the answer"
    return trouble


def _returned(job: Job, world: World, made: Mapping[str, str], outcome: Outcome, attempt: int) -> None:
    log = watching.log_path(job, world, attempt)
    entry = world.ledger.add(
        "returned",
        job.paid,
        **job.where,
        key=job.key.key,
        files=made,
        log=log,
        model=outcome.model,
        **sessions.plain(outcome),
        agent=outcome.agent,
        marker=marker(job, world, outcome.text) if job.step.routes else "",
    )
    world.book.returned[job.name] = entry


def _tasks(job: Job, world: World) -> str:
    """The task list that the agent ticks off; the statuses of a backlog are ours."""
    path = world.phases(job.step) if job.phase and job.step.phases else ""
    return "" if sections.is_backlog(path) else path


def _ticked(job: Job, world: World) -> tuple[str, ...]:
    path = _tasks(job, world)
    return (path,) if path and world.digest(path) else ()


def _text(entry: Mapping[str, Any]) -> str:
    try:
        with open(entry.get("log", ""), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LAST))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
