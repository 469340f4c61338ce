"""One writer of a DOT file at a time: a lock on the file itself, which stays when the file is replaced.

The new file is locked before it takes the place of the old one: nobody finds it free while its writer is not done.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from doflow.util import atomic_files as files
from doflow.util.errors import LockHeld

PATIENCE = 20.0


class Held:
    """The file as its only writer has it: its `text`, and the deed of replacing it."""

    __slots__ = ("_fds", "_path", "text")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fds = [fd]
        with open(fd, encoding="utf-8", newline="", closefd=False) as file:
            self.text = file.read()

    def replace(self, text: str) -> None:
        """Put this text there, whole and on the disk; the lock is on the new file, too."""
        folder, name = os.path.split(self._path)
        temporary = os.path.join(folder, f".{name}.tmp")
        with suppress(FileNotFoundError):  # left by a writer that was killed
            os.unlink(temporary)
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            self._fds.append(fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
            files.put(fd, text.encode("utf-8"))
            os.fchmod(fd, os.stat(self._path).st_mode & 0o777)
            os.fsync(fd)
            os.replace(temporary, self._path)
            folder_fd = files.open_folder(folder)
            try:
                os.fsync(folder_fd)
            finally:
                os.close(folder_fd)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise files.broke("write", self._path, error) from error
        self.text = text

    def release(self) -> None:
        for fd in self._fds:
            os.close(fd)


@contextmanager
def hold(path: str | os.PathLike[str], patience: float = PATIENCE) -> Iterator[Held]:
    """The only writer of this file, as long as the block lasts; who waits too long is told."""
    real = os.path.realpath(path)
    held = Held(real, _lock(real, patience))
    try:
        yield held
    finally:
        held.release()


def _lock(path: str, patience: float) -> int:
    end = time.monotonic() + patience
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise files.broke("read", path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass  # it is being replaced: the next round finds the new one
        except OSError as error:
            if time.monotonic() > end:
                os.close(fd)
                raise LockHeld(f"another program is changing {path}", "wait for it, then try again") from error
            time.sleep(0.005)
        os.close(fd)
