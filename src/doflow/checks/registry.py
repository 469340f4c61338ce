"""The checks, in the order in which they are asked; a step's contract holds when all of them do."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.checks import artifact, headings, tasks
from doflow.checks.contract import Checker
from doflow.model import Step
from doflow.world import World

CHECKS: tuple[Checker, ...] = (artifact, headings, tasks)


def problems(step: Step, paths: Sequence[str], world: World) -> str:
    """What is wrong with a step's artifacts, '' = nothing; later checks are asked only when earlier ones hold."""
    for checker in _asked(step):
        words = checker.check(step, paths, world)
        if words:
            return words
    return ""


def _asked(step: Step) -> tuple[Checker, ...]:
    found = CHECKS
    if step.check.schema:
        from doflow.checks import schema

        found = (*found, schema)
    if step.check.run:
        from doflow.checks import run

        found = (*found, run)
    return found
