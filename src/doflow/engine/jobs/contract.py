"""Does a job's result keep its contract? A command that says so is told apart from agents: what it writes is not theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from doflow.engine.checks import registry as checks
from doflow.engine.jobs import agent_results as returned, commit as settle
from doflow.flow.model import Outcome
from doflow.runs.context import World
from doflow.runs.job import Job

if TYPE_CHECKING:
    from doflow.guard.fence.fence import Fence


def problems(job: Job, world: World, fence: Fence, outcome: Outcome) -> str:
    """What is wrong with what was made or said, '' = nothing."""
    trouble = contract(job, world, fence)
    if not trouble and job.step.routes and not outcome.marker and not settle.marker(job, world, outcome.text):
        wanted = ", ".join(f"`{route.when}`" for route in job.step.routes)
        return f"none of the lines {wanted} stands in the artifact or at the end of the answer"
    return trouble


def again(job: Job, world: World, fence: Fence, entry: Mapping[str, Any], outcome: Outcome) -> str:
    """The same of what an earlier process has paid for: a command is watched there, too."""
    if not (job.watched and job.step.check.run):
        return problems(job, world, fence, outcome)
    with world.guard:
        fence.enter(job, entry)
    try:
        trouble = problems(job, world, fence, outcome)
    except BaseException:
        fence.abandon(job)
        raise
    with world.guard:
        fence.leave(job)
    return trouble


def contract(job: Job, world: World, fence: Fence) -> str:
    """What is wrong with what was made, '' = nothing."""
    if not (job.watched and job.step.check.run):
        return checks.problems(job.step, job.makes, world)
    with by_command(job, world, fence, check=True):
        return checks.problems(job.step, job.makes, world)


@contextmanager
def by_command(job: Job, world: World, fence: Fence, check: bool) -> Iterator[None]:
    """While a command of the flow's own is at work, and no agent: what it writes is not the agent's."""
    with world.guard:
        fence.command_begins(job, check)
    try:
        yield
    finally:
        with world.guard:
            fence.command_ended(job)
            returned.follow(job, world)
