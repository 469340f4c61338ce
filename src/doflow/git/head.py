"""Where a work tree stands: one frozen value that every deed of this room is handed."""

from __future__ import annotations

from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A work tree and what is checked out there.

    `ref` is '' when HEAD is detached, `commit` is '' when nothing was committed yet. `inode` (device and number) tells
    a git folder from another one put in its place.
    """

    root: str
    top: str
    git_dir: str
    common_dir: str
    ref: str
    branch: str
    commit: str
    inode: tuple[int, int] = (0, 0)
    reftable: bool = False
