"""A step that an agent does: it reads, it makes artifacts, they are checked and committed."""

from __future__ import annotations

from doflow.agents import call as calling
from doflow.engine.jobs import runner as frame
from doflow.flow.model import Outcome, Step
from doflow.guard.fence.fence import Fence
from doflow.runs.context import World
from doflow.runs.job import Job


def run(step: Step, world: World, fence: Fence) -> Outcome:
    wanted = job(step, world)
    outcome = frame.perform(wanted, world, fence, calling.call)
    if outcome.ok and not world.place.boxed.isdisjoint(wanted.makes):
        _list(wanted, world)
    return outcome


def _list(done: Job, world: World) -> None:
    """A task list was made: its checklist is kept for the agents of its phases."""
    from doflow.guard import stale_files as stale

    path = next(path for path in done.makes if path in world.place.boxed)
    stale.write(world, stale.checklist(world.place.text(path) or ""))


def job(step: Step, world: World) -> Job:
    makes = tuple(world.path(said) for said in step.makes)
    writes = tuple(glob if "/" not in glob or glob.startswith("/") else f"/{glob}" for glob in step.writes or ())
    return Job(step, world.key(step), makes, writes)
