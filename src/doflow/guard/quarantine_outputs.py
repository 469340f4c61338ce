"""Artifacts of a command that was not watched and did not succeed: kept aside, never taken for done."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping

from doflow.guard.quarantine import Quarantine
from doflow.runs.context import STATE, World
from doflow.runs.job import Job
from doflow.util import atomic_files as files


def failed(world: World, job: Job, begun: Mapping[str, str]) -> tuple[str, ...]:
    """What a command that failed has made, against what was there at its start; the last good one takes its place."""
    left = tuple(path for path in job.makes if (now := world.digest(path)) and now != begun[path])
    put(world, left, f"left by a failed attempt of {job.name}", job.name)
    for path in left:
        _committed_again(world, path)
    return left


def put(world: World, paths: Iterable[str], why: str, name: str) -> None:
    keep = Quarantine(world.root / STATE / "quarantine").about(why, world.run.name, name)
    for path in paths:
        folder = os.open(os.path.dirname(world.root / path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            keep(folder, os.path.basename(path), path)
        finally:
            os.close(folder)


def _committed_again(world: World, path: str) -> None:
    """The artifact as the step made it the last time it succeeded, if the branch has it."""
    held = world.book.artifacts.get(path)
    if held is None:
        return
    from doflow.git import history

    data = history.show(world.git, "HEAD", f"{world.prefix}{path}")
    if data is not None and hashlib.sha256(data).hexdigest() == held.digest:
        files.write(str(world.root / path), data)
