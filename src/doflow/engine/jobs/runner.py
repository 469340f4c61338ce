"""The frame around every job: begin, attempt, returned, check and repair, settle (lock, commit, done).

The order of writes is the resume: whatever is missing at the next start is made good from what is there. From
`returned` on nothing is paid again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from doflow.flow.model import Outcome, Status
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.util.process import runner as process
from doflow.util.records import later, replace

if TYPE_CHECKING:
    from doflow.agents import rate_limits as patience, sessions
    from doflow.agents.rate_limits import Patience
    from doflow.agents.sessions import Session
    from doflow.engine.jobs import (
        agent_results as returned,
        commit as settle,
        contract as checking,
        outcomes as endings,
    )
    from doflow.engine.jobs.agent_results import Again
    from doflow.guard import quarantine_outputs as aside
    from doflow.guard.fence.fence import Fence
    from doflow.runs.freshness import freshness as judge
else:
    endings, judge, patience, returned = map(
        later,
        (
            "doflow.engine.jobs.outcomes",
            "doflow.runs.freshness.freshness",
            "doflow.agents.rate_limits",
            "doflow.engine.jobs.agent_results",
        ),
    )
    sessions, settle, checking = map(
        later, ("doflow.agents.sessions", "doflow.engine.jobs.commit", "doflow.engine.jobs.contract")
    )
    aside = later("doflow.guard.quarantine_outputs")

#: ends of a call that mean: not now
WAITING = frozenset({Status.RATE_LIMITED, Status.PAUSED, Status.CANCELLED, Status.AUTH})

Produce = Callable[[Job, World, int], Outcome]


def perform(job: Job, world: World, fence: Fence, produce: Produce) -> Outcome:
    """Do a job, or finish what an earlier process began of it."""
    waiting: Patience | None = None
    ended: Outcome | None = None
    while ended is None:
        entry = returned.kept(job, world) if job.name in world.book.returned else None
        if entry is not None:
            outcome = _resumed(job, world, fence, produce, entry)
        else:
            outcome = _refusal(job, world) or _attempts(job, world, fence, produce)
        if outcome.status is Status.RATE_LIMITED:
            waiting = waiting or patience.Patience(job, world)
            ended = waiting.over(outcome)
        else:
            ended = outcome
    outcome = ended
    if outcome.ok:
        outcome = settle.settle(job, world, outcome)
    if not outcome.ok:
        outcome = endings.hinted(outcome, world)
        endings.told(job, world, outcome)
    return outcome


def _resumed(job: Job, world: World, fence: Fence, produce: Produce, entry: Mapping[str, Any]) -> Outcome:
    """The result is paid: it is checked and, if that is not enough, handed back; it is not made again."""
    outcome = returned.outcome(entry)
    if entry.get("unfinished"):
        return _attempts(job, world, fence, produce, returned.Again(entry, outcome, ""))
    if entry.get("edited"):
        names = ", ".join(entry["edited"])
        message = f"{names}: changed since the agent of {job.name} returned, and taken as part of what it made"
        world.ledger.add("warning", **job.where, message=message)
    world.ledger.add("resumed", **job.where)
    trouble = checking.again(job, world, fence, entry, outcome)
    if not trouble:
        return outcome
    if process.stopping():
        return _interrupted(job, world)
    if not job.watched:
        left = aside.failed(world, job, dict.fromkeys(job.makes, ""))
        return endings.leftovers(endings.broken(job, world, trouble), left)
    return _attempts(job, world, fence, produce, returned.Again(entry, outcome, trouble))


def _refusal(job: Job, world: World) -> Outcome | None:
    missing = (*job.key.missing, *keys.read_digests(job.step.needs, world.place)[1])
    if missing:
        names = ", ".join(missing)
        hint = f"doflow why {job.step.id} shows what it waits for; create the file, or run the step that makes it"
        return Outcome(Status.FAILED, f"{job.step.id} needs {names}, which does not exist", hint)
    if job.phase is None and job.step.id not in world.options.force:
        edited = judge.edited(job.step, world) if job.step.makes else ()
        if edited:
            return endings.in_the_way(job, world, edited)
    return None


def _attempts(job: Job, world: World, fence: Fence, produce: Produce, again: Again | None = None) -> Outcome:
    seen: dict[str, int] = {}
    attempt = 0
    while True:
        attempt += 1
        outcome = _attempt(job, world, fence, produce, attempt, again if attempt == 1 else None)
        seen[outcome.reason] = seen.get(outcome.reason, 0) + 1
        if outcome.ok or not outcome.transient:
            return outcome
        retry = patience.retry(job, world)
        if attempt > retry.attempts:
            return outcome
        if seen[outcome.reason] > 2:
            return replace(outcome, reason=f"{outcome.reason} (the same three times: not tried again)")
        wait = patience.backoff(retry, attempt)
        world.ledger.add("retry", **job.where, attempt=attempt, reason=outcome.reason, wait=round(wait, 3))
        if not patience.sleep(wait):
            return Outcome(Status.CANCELLED, "interrupted while waiting for the next attempt")


def _attempt(job: Job, world: World, fence: Fence, produce: Produce, attempt: int, again: Again | None) -> Outcome:
    """One attempt from a snapshot; if it comes to nothing the tree is as it was, and what it left is kept aside."""
    watched = job.watched
    begun = {path: world.digest(path) for path in job.makes}
    for path in job.makes:
        (world.root / path).parent.mkdir(parents=True, exist_ok=True)
    if watched:
        with world.guard:
            fence.enter(job, again.entry if again else None)
    event = "phase_starting" if job.phase else "step_starting"
    title: dict[str, Any] = {"title": job.phase.title, "of": job.of} if job.phase else {}
    if again:
        title["again"] = True
    else:
        world.book.returned.pop(job.name, None)
    world.ledger.add(event, durable=job.paid, **job.where, **title, attempt=attempt, key=job.key.key, makes=begun)
    try:
        outcome = _produced(job, world, fence, produce, attempt, again)
        if watched and not outcome.ok and not outcome.held:
            with world.guard:
                left = fence.undo(job, f"left by a failed attempt of {job.name}")
            outcome = endings.leftovers(outcome, left)
        elif not watched and not outcome.ok and not outcome.held:
            outcome = endings.leftovers(outcome, aside.failed(world, job, begun))
    except BaseException:
        fence.abandon(job)
        raise
    if watched:
        with world.guard:
            fence.leave(job)
    return outcome


def _produced(job: Job, world: World, fence: Fence, produce: Produce, attempt: int, again: Again | None) -> Outcome:
    """The agent's result, written down as soon as it is there, then held against the contract and handed back."""
    if again and not again.unfinished:
        outcome, trouble, session, turns = again.outcome, again.trouble, sessions.told(again.entry), again.repairs
    else:
        outcome = accepted(job, world, fence, produce(job, world, attempt), attempt)
        trouble, session, turns = _trouble(job, world, fence, outcome), sessions.left(outcome), 0
    while trouble:
        if process.stopping():
            return _interrupted(job, world)
        if not job.paid or turns >= job.step.repair:
            return endings.broken(job, world, trouble, outcome.denied)
        turns += 1
        with world.guard:
            fence.keep(job)
        outcome = accepted(job, world, fence, _hand_back(job, world, attempt, trouble, session), attempt, turns)
        if outcome.status in WAITING:  # nobody mended it: what is paid is kept for later
            return put_off(job, world, fence, outcome)
        trouble, session = _trouble(job, world, fence, outcome), sessions.left(outcome)
    return outcome


def put_off(job: Job, world: World, fence: Fence, outcome: Outcome) -> Outcome:
    """As it was returned; what a call has made of it since that did not come to its end is kept aside."""
    with world.guard:
        left = fence.back(job)
    return endings.leftovers(replace(outcome, held=returned.kept(job, world) is not None), left)


def _interrupted(job: Job, world: World) -> Outcome:
    """A check that was cut short says nothing: what is there is checked by the next command."""
    return Outcome(Status.CANCELLED, "interrupted", held=returned.kept(job, world) is not None)


def _trouble(job: Job, world: World, fence: Fence, outcome: Outcome) -> str:
    return checking.problems(job, world, fence, outcome) if outcome.ok else ""


def accepted(
    job: Job, world: World, fence: Fence, outcome: Outcome, attempt: int, repairs: int = 0, unfinished: bool = False
) -> Outcome:
    """Nothing outside of its scope was written: `returned`. From here on nothing is paid again."""
    if not outcome.ok:
        return outcome
    with world.guard:
        mine, strays = fence.look(job) if job.watched else ((), ())
        if strays:
            whose = replace(job, makes=()) if unfinished else job
            held = bool(whose.makes) and not checking.contract(whose, world, fence)
            made = tuple(returned.files(job, world, mine))
            return endings.strayed(whose, world, strays, made, fence.beside(job), held)
        if job.phase and not mine:
            world.ledger.add("warning", **job.where, message=f"the agent of {job.name} is done and changed no file")
        files = returned.files(job, world, mine)
        if job.commits or files:
            work = fence.work(job) if job.watched else ""
            about = {"repairs": repairs, "work": work, "unfinished": unfinished}
            returned.write(job, world, files, outcome, attempt, **about)
    return outcome


def _hand_back(job: Job, world: World, attempt: int, trouble: str, session: Session | None) -> Outcome:
    world.ledger.add("warning", **job.where, message=f"not yet right, handed back: {_first(trouble)}")

    from doflow.agents import call as calling

    return calling.call(job, world, attempt, role="repair", trouble=trouble, session=session)


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
