"""Locks on files and folders that the kernel releases when their holder ends (flock), and who holds them.

Imports little, and only the standard library: every hook imports this.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from doflow.util import atomic_files, timestamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def acquire(fd: int, shared: bool = False) -> bool:
    """Take the lock of an open file; False at once if another process holds it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def acquire_waiting(fd: int) -> None:
    """Take the lock of an open file, however long that takes."""
    fcntl.flock(fd, fcntl.LOCK_EX)


def lock_file(path: str, shared: bool = False) -> int:
    """A descriptor that holds the lock of a file, which is created if needed; -1 = another process holds it."""
    fd = os.open(path, LOCK_FILE, 0o644)
    if acquire(fd, shared):
        return fd
    os.close(fd)
    return -1


def lock_folder(path: str | os.PathLike[str]) -> int:
    """A descriptor that holds the lock of a folder; -1 = another process holds it.

    Tried three times, because `is_held` takes the lock for a moment.
    """
    fd = os.open(path, _FOLDER)
    for pause in (0.02, 0.02, 0.0):
        if acquire(fd):
            return fd
        time.sleep(pause)
    os.close(fd)
    return -1


def adopt(fd: int, path: str | os.PathLike[str]) -> bool:
    """Use a lock of `path` that a parent process holds through an inherited descriptor; False = it isn't such a descriptor.

    Checked by locking: through any other descriptor the lock is taken.
    """
    try:
        if not os.path.samestat(os.fstat(fd), os.stat(path)) or not acquire(fd):
            return False
        os.set_inheritable(fd, False)
    except OSError:
        return False
    return True


def is_current(fd: int, path: str) -> bool:
    """Whether an open file is still the one at its path, not one that was replaced or removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def is_held(path: str | os.PathLike[str]) -> bool:
    """Whether the lock of a file or a folder is held now; False if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not acquire(fd, shared=True)
    finally:
        os.close(fd)


def write_pid(fd: int) -> None:
    """Write our process id into the locked file."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)


def read_pid(path: str) -> int:
    """The process id in a lock file; 0 = none."""
    try:
        with open(path, "rb") as file:
            text = file.read(100).decode("ascii", "replace").strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdecimal() else 0


def holder_pid(path: str) -> int:
    """The process that holds a lock file; 0 = none, -1 = unknown."""
    return (read_pid(path) or -1) if is_held(path) else 0


def write_holder(path: str | os.PathLike[str], command: str, **more: str) -> None:
    """Write to a file next to the lock who holds it, since when and for what; only used in messages."""
    words = {"pid": os.getpid(), "since": timestamps.now(), "command": command, **more}
    atomic_files.write_file(path, (json.dumps(words) + "\n").encode(), sync=False)


def read_holder(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `write_holder` wrote; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def holder_from_kernel(path: str | os.PathLike[str]) -> int:
    """The process that holds a lock, as Linux lists it; 0 = unknown."""
    try:
        found = os.stat(path)
        mark = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open("/proc/locks", encoding="ascii") as file:
            for line in file:
                words = line.split()
                if mark in words and "FLOCK" in words and "->" not in words:
                    return int(words[4])
    except (OSError, IndexError, ValueError):
        pass
    return 0
