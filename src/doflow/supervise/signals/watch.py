"""Sleeping until there is news in a folder: woken by the kernel on Linux, by a look now and then elsewhere."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

LONGEST = 5.0  # even a watched folder is looked at this often: a network's folder tells the kernel nothing
GLANCE = 0.25  # where nobody wakes us

_EVENTS = 0x80 | 0x8 | 0x100 | 0x200  # IN_MOVED_TO, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE
_FLAGS = 0o4000 | 0o2000000  # IN_NONBLOCK, IN_CLOEXEC
T = TypeVar("T")


class Watch:
    """Watches folders from the moment it is made: look after that, then sleep, and nothing is missed."""

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
                self.close()  # no more watches to be had: a look now and then does it too

    def sleep(self, seconds: float) -> bool:
        """Until something happens there, or for this long; True = there may be news."""
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

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def until(look: Callable[[], T | None], folders: Iterable[str], timeout: float, kernel: bool = True) -> T | None:
    """What `look` finds, as soon as it finds something; None after `timeout` seconds (0 = one look)."""
    end = time.monotonic() + timeout
    with Watch(folders, kernel) as watch:
        while (found := look()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            watch.sleep(left)
    return found


def _inotify() -> int:
    """A descriptor of the kernel's watcher, -1 where there is none."""
    if not sys.platform.startswith("linux"):
        return -1
    import ctypes

    try:
        return int(ctypes.CDLL(None, use_errno=True).inotify_init1(_FLAGS))
    except (AttributeError, OSError):
        return -1


def _add_watch(fd: int, folder: str) -> bool:
    import ctypes

    return int(ctypes.CDLL(None, use_errno=True).inotify_add_watch(fd, os.fsencode(folder), _EVENTS)) >= 0
