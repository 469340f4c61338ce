"""Putting a draft in its place: doflow writes the files that no agent may write, from what an agent has drafted."""

from __future__ import annotations

import os

from doflow.engine.jobs import runner as frame
from doflow.flow import backlog, markdown as sections
from doflow.flow.model import Outcome, Status, Step
from doflow.guard.fence.fence import Fence
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util import atomic_files as files


def run(step: Step, world: World, fence: Fence) -> Outcome:
    outcome = frame.perform(job(step, world), world, fence, _install)
    path = world.path(step.makes[0])
    if outcome.ok and path in world.place.boxed and sections.is_backlog(path):
        from doflow.guard import stale_files as stale

        found = backlog.phases(world.place.text(path) or "", path)
        stale.write(world, [f"- [ ] {phase.number} {phase.title}" for phase in found])
    return outcome


def job(step: Step, world: World) -> Job:
    return Job(step, world.key(step), (world.path(step.makes[0]),), ())


def _install(job: Job, world: World, attempt: int) -> Outcome:
    draft = world.path(job.step.reads[0].path)
    text = world.place.text(draft)
    if text is None:
        return Outcome(Status.FAILED, f"{draft} does not exist", f"doflow why {job.step.id}")
    target = world.root / job.makes[0]
    os.makedirs(target.parent, exist_ok=True)
    files.write(str(target), text.encode("utf-8", "surrogateescape"))
    return Outcome(Status.DONE)
