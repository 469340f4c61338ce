"""Lock files that a killed git left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from doflow.git.head import Head

_PATIENCE = 1.0
_NAMES = ("index.lock", "HEAD.lock", "packed-refs.lock", "reftable/tables.list.lock")


def remove_stale_locks(head: Head, since: float) -> tuple[str, ...]:
    """Remove lock files that are newer than the killed run (`since`, seconds); returns their paths.

    A lock that a running git may hold stays: we wait a moment for it, and the next git command reports it.
    """
    until = time.monotonic() + _PATIENCE
    found = tuple(_left(head, since))
    while found and time.monotonic() < until:
        time.sleep(0.05)
        found = tuple(path for path in found if _young(path, since))
    if not found or _at_work(head):
        return ()
    for path in found:
        os.unlink(path)
    return found


def _left(head: Head, since: float) -> Iterator[str]:
    for folder in {head.git_dir, head.common_dir}:
        yield from (path for name in _NAMES if _young(path := os.path.join(folder, name), since))
    for family in ("refs/heads", "refs/doflow"):
        for folder, _, names in os.walk(os.path.join(head.common_dir, family)):
            paths = (os.path.join(folder, name) for name in names if name.endswith(".lock"))
            yield from (path for path in paths if _young(path, since))


def _young(path: str, since: float) -> bool:
    try:
        return os.lstat(path).st_mtime >= since
    except OSError:
        return False


def _at_work(head: Head) -> bool:
    """Whether a git process is running that could hold a lock here; True if unknown."""
    if not os.path.isdir("/proc/self"):
        return True
    shared = head.common_dir != head.git_dir or os.path.isdir(os.path.join(head.common_dir, "worktrees"))
    return any(shared or _inside(pid, head) for pid in os.listdir("/proc") if pid.isdigit() and _is_git(pid))


def _is_git(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = file.read().partition(b"(")[2].rpartition(b") ")
    except OSError:
        return False
    return name.startswith(b"git") and rest.split()[0] != b"Z"


def _inside(pid: str, head: Head) -> bool:
    try:
        place = os.readlink(f"/proc/{pid}/cwd")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's process
    return any(place == top or place.startswith(top + os.sep) for top in (head.top, head.git_dir))
