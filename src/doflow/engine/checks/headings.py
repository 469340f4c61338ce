"""The headings a step's artifacts must have, at any level, upper or lower case."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.flow import markdown as sections
from doflow.flow.model import Step
from doflow.runs.context import World


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.headings:
        return ""
    have = {heading.title.casefold() for path in paths for heading in sections.headings(world.place.text(path) or "")}
    missing = [name for name in step.check.headings if name.casefold() not in have]
    names = ", ".join(f"`## {name}`" for name in missing)
    return f"{paths[0] if paths else step.id}: the heading {names} is missing" if missing else ""
