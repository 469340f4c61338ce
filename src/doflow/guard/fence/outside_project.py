"""Where the project is a folder of a larger repository: what changes in the rest of it while an agent works is told.

Only told: the rest is not walked, not put back and not committed.
"""

from __future__ import annotations

import os

from doflow.git import history
from doflow.runs.context import World
from doflow.runs.job import Job

Seen = dict[str, tuple[int, ...]]

_MANY = 5


def look(world: World) -> Seen:
    """The files beside the project that are not as git has them, each with its stat, from the top of the work tree."""
    top = world.git.head.top
    return {name: _stat(os.path.join(top, name)) for name in history.beside(world.git)}


def tell(world: World, job: Job, before: Seen) -> Seen:
    """What has changed there since; gives what there is now."""
    now = look(world)
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if names:
        shown = ", ".join(os.path.relpath(name, world.prefix) for name in names[:_MANY])
        more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
        world.ledger.add(
            "warning",
            **job.where,
            message=f"changed outside of the project while {job.name} was at work: {shown}{more}",
            hint=f"not put back, and not committed with {job.name}: look (git status), then commit or undo it yourself; "
            "an agent in a sandbox cannot write there",
        )
    return now


def _stat(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
