"""Can the parts of a step be gone by: the phases of its task list, the items of its list? What is wrong, and what to type.

A list may have been edited by hand since it was checked: no agent is called for one that cannot be read as it is meant.
"""

from __future__ import annotations

from doflow.flow import markdown as sections, tasklist
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.util.errors import DoflowError, Undecided, UsageError

_SHOWN = 10


def trouble(step: Step, world: World) -> DoflowError | None:
    """Why nothing of this step can be done; None = it can, or what it is filled from is not there yet."""
    if step.kind == "implement":
        return None if world.frozen else _phases(step, world)
    try:
        world.items(step)
    except DoflowError as error:
        return error
    return None


def _phases(step: Step, world: World) -> DoflowError | None:
    path = world.phases(step)
    text = world.place.text(path)
    if text is None or sections.is_backlog(path):
        return None
    maker = next((found for found in world.flow.steps if path in map(world.path, found.makes)), None)
    checked = maker is not None and maker.check.tasks
    if not text.strip():
        refusal = Undecided if checked else UsageError
        return refusal(f"{step.id} has nothing to do: {path} is empty", _way_out(path, maker, world))
    faults = tasklist.parse(text).problems if checked else ()
    if faults and maker and not _settled(step, world):
        lines = [f"  {path}:{fault.line}: {fault.message}" for fault in faults[:_SHOWN]]
        lines += [f"  and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        message = f"{step.id} waits: its task list does not keep the contract of {maker.id}\n" + "\n".join(lines)
        return Undecided(message, _way_out(path, maker, world))
    seen: dict[int, int] = {}
    for phase in sections.phases(text):
        first = seen.setdefault(int(phase.number), phase.line)
        if first != phase.line:
            twice = f"Phase {phase.number} stands there twice (first in line {first})"
            message = f"{step.id} cannot tell its phases apart: {path}:{phase.line}: {twice}"
            return UsageError(message, _way_out(path, maker, world))
    return None


def _settled(step: Step, world: World) -> bool:
    """Every phase is done and none would be done again: nobody is called, whatever stands around them."""
    return all(judge.of_phase(step, phase, key, world).fresh for phase, key in judge.phase_keys(step, world))


def _way_out(path: str, maker: Step | None, world: World) -> str:
    again = f"   or   {world.again} --force={maker.id}   has it made again" if maker else ""
    return f"mend {path}, then: {world.again}{again}"
