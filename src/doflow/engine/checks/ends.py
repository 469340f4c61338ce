"""The line that a step's artifacts must end with: one of those that the step names."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.flow.model import Step
from doflow.runs.context import World


def check(step: Step, paths: Sequence[str], world: World) -> str:
    wanted = step.check.ends
    for path in paths if wanted else ():
        lines = (world.place.text(path) or "").rstrip().splitlines()
        if not lines or lines[-1].strip() not in wanted:
            return f"{path}: its last line must be {' or '.join(f'`{line}`' for line in wanted)}"
    return ""
