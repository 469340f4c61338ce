"""A step that an agent does: it reads, it makes artifacts, they are checked and committed."""

from __future__ import annotations

from doflow import calling, frame
from doflow.guards.fence import Fence
from doflow.job import Job
from doflow.model import Outcome, Step
from doflow.world import World


def run(step: Step, world: World, fence: Fence) -> Outcome:
    return frame.perform(job(step, world), world, fence, calling.call)


def job(step: Step, world: World) -> Job:
    makes = tuple(world.path(said) for said in step.makes)
    writes = tuple(glob if "/" not in glob or glob.startswith("/") else f"/{glob}" for glob in step.writes or ())
    return Job(step, world.key(step), makes, writes)
