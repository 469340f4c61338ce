"""A step that an agent does: it reads, it makes artifacts, they are checked and committed."""

from __future__ import annotations

from doflow import calling, files, frame
from doflow.guards.fence import Fence
from doflow.job import Job
from doflow.model import Outcome, Step
from doflow.world import World


def run(step: Step, world: World, fence: Fence) -> Outcome:
    return frame.perform(job(step, world), world, fence, produce)


def job(step: Step, world: World) -> Job:
    makes = tuple(world.path(said) for said in step.makes)
    writes = tuple(glob if "/" not in glob or glob.startswith("/") else f"/{glob}" for glob in step.writes or ())
    return Job(step, world.key(step), makes, writes)


def produce(job: Job, world: World, attempt: int) -> Outcome:
    """One call. `from: text` saves its last words, unless the agent wrote the artifact itself: chat never covers that up."""
    before = world.digest(job.makes[0]) if job.step.from_text else ""
    outcome = calling.call(job, world, attempt)
    if outcome.ok and job.step.from_text and world.digest(job.makes[0]) == before:
        text = outcome.text.strip("\n") + "\n" if outcome.text.strip() else ""
        files.write(str(world.root / job.makes[0]), text.encode("utf-8", "surrogateescape"))
    return outcome
