"""Code in phases: one agent call and one commit per `## Phase N` of the task list."""

from __future__ import annotations

from doflow import calling, endings, frame, judge
from doflow.guards.fence import Fence
from doflow.job import Job
from doflow.model import Outcome, Status, Step
from doflow.world import World

#: what doit's reading of dodo.py leaves, should somebody have committed it
_OURS = "__pycache__/dodo."


def run(step: Step, number: str, world: World, fence: Fence) -> Outcome:
    """One phase. Tracked files outside the run's folder must be clean: they would be committed with it."""
    keyed = judge.phase_keys(step, world)
    found = [place for place, (phase, _) in enumerate(keyed) if phase.number == number]
    if not found:
        path = world.phases(step)
        return Outcome(Status.FAILED, f"{path} has no phase {number} any more", f"doit list --all; then: {world.again}")
    phase, key = keyed[found[0]]
    if number == "all":
        world.ledger.add(
            "warning", step=step.id, message=f"{world.phases(step)} has no `## Phase N: title`: done in one call"
        )
    job = Job(step, key, (), step.writes, phase, last=found[0] == len(keyed) - 1, of=len(keyed))
    if job.name not in world.book.returned:
        paused = _unclean(job, world)
        if paused is not None:
            endings.told(job, world, paused)
            return paused
    return frame.perform(job, world, fence, calling.call)


def _unclean(job: Job, world: World) -> Outcome | None:
    from doflow.repo import history

    dirty = [name for name in history.dirty(world.git, (world.run.dir,)) if not name.startswith(_OURS)]
    if not dirty:
        return None
    names = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
    return Outcome(
        Status.PAUSED,
        f"{job.name} waits: {names} changed and not committed, and a phase commits what it changes",
        f"commit or stash your changes, then: {world.again}",
    )
