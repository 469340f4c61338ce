"""The task list of a phase under its agent: boxes may be ticked, its words stay as they were.

Or the agent of the first phase could do away with the second one, and the run would be done without it.
"""

from __future__ import annotations

import os
import stat

from doflow.flow import markdown as sections
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util import atomic_files as files


def reworded(world: World, path: str, before: bytes) -> bool:
    """Was more changed in it than its boxes?"""
    return sections.untick(_decoded(before)) != sections.untick(_decoded(read(world, path)))


def tick(world: World, path: str, said: bytes) -> None:
    """The list is as it was before; now with the boxes ticked that the agent had ticked in what it said."""
    was = _decoded(read(world, path))
    text = sections.ticked(was, _decoded(said))
    if text != was:
        files.write(str(world.root / path), text.encode("utf-8", "surrogateescape"))


def told(world: World, job: Job, path: str) -> None:
    world.ledger.add(
        "warning",
        **job.where,
        message=f"the agent of {job.name} changed the words of {path}, where it may tick boxes only: they are put back",
        hint="what was made of it: doflow quarantine list; tasks that are missing are yours to add, when it does not run",
    )


def read(world: World, path: str) -> bytes:
    """What is there now; nothing, unless it is a plain file."""
    try:
        fd = os.open(world.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as stream:
        return stream.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
