"""A backlog that subtasks can be taken from, as docs/prd.md says; in a draft nothing is done yet."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.flow import backlog
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.util.errors import UsageError


def check(step: Step, paths: Sequence[str], world: World) -> str:
    words: list[str] = []
    for path in paths:
        try:
            found = backlog.parse(world.place.text(path) or "", path)
        except UsageError as error:
            words.append(error.message)
            continue
        begun = [item["id"] for item in backlog.every(found) if item["status"] != backlog.PLANNED]
        if begun and step.kind == "agent":
            words.append(f"{path}: the status of {', '.join(begun[:5])} is not `Planned`: doflow keeps the statuses")
    return "\n".join(words)
