"""A working tree and its HEAD as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A working tree and what is checked out there.

    `ref` is '' when HEAD is detached, `commit` is '' when nothing was committed yet. `inode` (device and number) detects
    a replaced git folder.
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
