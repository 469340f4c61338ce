"""Wait for changes in folders: with inotify on Linux, by polling elsewhere."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

LONGEST = 5.0  # even watched folders are polled this often: network file systems send no events
GLANCE = 0.25  # polling interval without inotify

_EVENTS = 0x80 | 0x8 | 0x100 | 0x200  # IN_MOVED_TO, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE
_FLAGS = 0o4000 | 0o2000000  # IN_NONBLOCK, IN_CLOEXEC
T = TypeVar("T")


class FolderWatch:
    """Watches folders from its creation on: check first, then sleep, and nothing is missed."""

    def __init__(self, folders: Iterable[str], kernel: bool = True) -> None:
        self._fd = _inotify() if kernel else -1
        self._watched: set[str] = set()
        for folder in folders:
            self.add(folder)

    def add(self, folder: str) -> None:
        if self._fd >= 0 and folder not in self._watched:
            if _add_watch(self._fd, folder):
                self._watched.add(folder)
            else:
                self.close()  # no watches left: poll instead

    def sleep(self, seconds: float) -> bool:
        """Until something changes, or for this long; True = there may be changes."""
        seconds = max(0.0, seconds)
        if self._fd < 0:
            time.sleep(min(seconds, GLANCE))
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(min(seconds, LONGEST) * 1000):
            return seconds > LONGEST
        with suppress(BlockingIOError):
            while os.read(self._fd, 65536):
                pass
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> FolderWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(look: Callable[[], T | None], folders: Iterable[str], timeout: float, kernel: bool = True) -> T | None:
    """The first result of `look` that isn't None; None after `timeout` seconds (0 = one call)."""
    end = time.monotonic() + timeout
    with FolderWatch(folders, kernel) as watch:
        while (found := look()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            watch.sleep(left)
    return found


def _inotify() -> int:
    """An inotify descriptor; -1 where there is none."""
    if not sys.platform.startswith("linux"):
        return -1
    try:
        return int(ctypes.CDLL(None, use_errno=True).inotify_init1(_FLAGS))
    except (AttributeError, OSError):
        return -1


def _add_watch(fd: int, folder: str) -> bool:
    return int(ctypes.CDLL(None, use_errno=True).inotify_add_watch(fd, os.fsencode(folder), _EVENTS)) >= 0
