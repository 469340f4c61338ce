"""Whether a file has changed, without reading it."""

from __future__ import annotations

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class FileSignature(NamedTuple):
    """Differs after every change of a file: no program can set the ctime, which changes with the mode, too."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def from_status(status: os.stat_result) -> FileSignature:
    return FileSignature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def from_path(path: str | os.PathLike[str], follow: bool = True) -> FileSignature | None:
    """The signature of a file now (of a link's target, with `follow`); None = there is none."""
    try:
        return from_status(os.stat(path, follow_symlinks=follow))
    except OSError:
        return None


def is_unchanged(path: str | os.PathLike[str], recorded: Sequence[int] | None, follow: bool = True) -> bool:
    """Whether a file still has a recorded signature (None = the file did not exist), possibly from JSON."""
    found = from_path(path, follow)
    return found == (None if recorded is None else tuple(recorded))
