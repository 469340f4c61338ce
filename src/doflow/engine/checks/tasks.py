"""A task list that phases can be taken from, as docs/tasks.md says.

Of a step with several artifacts only the task lists are looked at: the files that an `implement` step takes its phases
from. Of a review those that it reads: its fixer may have changed them.
"""

from __future__ import annotations

from collections.abc import Sequence

from doflow.flow import tasklist
from doflow.flow.model import Step
from doflow.runs.context import World


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.tasks:
        return ""
    words: list[str] = []
    for path in _lists(step, paths, world):
        found = tasklist.parse(world.place.text(path) or "")
        words += [f"{path}:{problem.line}: {problem.message}" for problem in found.problems]
        for warning in () if found.problems else found.warnings:
            world.ledger.add("warning", step=step.id, message=f"{path}:{warning.line}: {warning.message}")
    return "\n".join(words)


def _lists(step: Step, paths: Sequence[str], world: World) -> tuple[str, ...]:
    read = [path for given in step.reads for path in world.place.expand(given.path)] if step.kind == "review" else []
    known = tuple(path for path in (*paths, *read) if path in world.place.boxed)
    return known or tuple(paths)
