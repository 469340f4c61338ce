"""Code in phases: one agent call and one commit per `## Phase N` of the task list."""

from __future__ import annotations

from doflow.agents import call as calling
from doflow.engine.jobs import outcomes as endings, runner as frame
from doflow.engine.steps import work_items as worklist
from doflow.flow import markdown as sections
from doflow.flow.model import Outcome, Status, Step
from doflow.guard.fence.fence import Fence
from doflow.runs import session_layout as sessionpaths
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.job import Job

#: what doit's reading of dodo.py leaves, should somebody have committed it
_OURS = "__pycache__/dodo."


def run(step: Step, number: str, world: World, fence: Fence) -> Outcome:
    """One phase. Tracked files outside the run's folder must be clean: they would be committed with it."""
    keyed = judge.phase_keys(step, world)
    found = [place for place, (phase, _) in enumerate(keyed) if phase.number == number]
    if not found:
        path = world.phases(step)
        return Outcome(Status.FAILED, f"{path} has no phase {number} any more", f"doit list --all; then: {world.again}")
    if trouble := worklist.trouble(step, world):  # edited since the phase before it
        raise trouble
    phase, key = keyed[found[0]]
    if number == "all":
        world.ledger.add(
            "warning", step=step.id, message=f"{world.phases(step)} has no `## Phase N: title`: done in one call"
        )
    job = Job(step, key, (), step.writes, phase, last=found[0] == len(keyed) - 1, of=len(keyed))
    if job.name not in world.book.returned:
        if not found[0]:
            _leaks(job, world)
        paused = _unclean(job, world)
        if paused is not None:
            endings.told(job, world, paused)
            return paused
        _mark(job, world, "Implementing")
    outcome = frame.perform(job, world, fence, calling.call)
    if outcome.status not in (Status.DONE, Status.PAUSED, Status.RATE_LIMITED, Status.CANCELLED):
        _mark(job, world, "Failed")
    return outcome


def _mark(job: Job, world: World, status: str) -> None:
    """How far a subtask is, where the phases are a backlog's."""
    if job.phase and sections.is_backlog(job.step.phases):
        from doflow.engine.jobs import backlog_status as statuses

        statuses.mark(job.step, world, job.phase.number, status)


def _leaks(job: Job, world: World) -> None:
    """Before the first phase: code that is in the run's folder already was written before its time."""
    from doflow.guard import early_code as leaks

    found = leaks.sweep(world)
    if found:
        leaks.tell(world, found, job.step.id)


def _unclean(job: Job, world: World) -> Outcome | None:
    from doflow.git import history

    ours = tuple(folder for folder in (world.run.dir, sessionpaths.parent(world.run.dir)) if folder)
    given = world.params.get("prd", "") if world.flow.in_sessions else ""  # a person's, and no agent's to change
    dirty = [name for name in history.dirty(world.git, ours) if not name.startswith(_OURS) and name != given]
    dirty = [name for name in dirty if world.book.left.get(name) != world.digest(name)]  # a command's, not a person's
    if not dirty:
        return None
    names = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
    return Outcome(
        Status.PAUSED,
        f"{job.name} waits: {names} changed and not committed, and a phase commits what it changes",
        f"commit or stash your changes, then: {world.again}",
    )
