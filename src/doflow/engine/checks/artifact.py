"""Every artifact is there: a regular file inside the project, not empty where that is asked."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from doflow.flow.model import Step
from doflow.runs.context import World


def check(step: Step, paths: Sequence[str], world: World) -> str:
    return "\n".join(words for path in paths if (words := _wrong(path, step, world)))


def _wrong(path: str, step: Step, world: World) -> str:
    full = os.path.join(world.root, path)
    try:
        found = os.lstat(full)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} was not written"
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a regular file"
    inside = os.path.realpath(full).startswith(os.path.realpath(world.root) + os.sep)
    if not inside:
        return f"{path} leads out of the project"
    if found.st_size == 0 or (step.check.not_empty and not (world.place.text(path) or "").strip()):
        return f"{path} is empty"
    return ""
