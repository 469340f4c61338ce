"""Finding and killing processes by a mark in their environment: for when whoever started them is gone."""

from __future__ import annotations

import os
import time


def kill(*marks: bytes) -> set[int]:
    """Kill every process whose environment holds all the marks (where there is a /proc to see it); the pids.

    A mark that ends in `*` stands for whatever begins like it.
    """
    killed: set[int] = set()
    for _ in range(100 if os.path.isdir("/proc/self") else 0):
        found = [name for name in os.listdir("/proc") if name.isdigit() and _marked(name, marks)]
        if not found:
            break
        killed.update(int(name) for name in found)
        for name in found:
            try:
                os.kill(int(name), 9)
            except OSError:
                pass  # it ended while we looked
        time.sleep(0.01)
    return killed


def _marked(pid: str, marks: tuple[bytes, ...]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return all(any(_same(word, mark) for word in words) for mark in marks)


def _same(word: bytes, mark: bytes) -> bool:
    return word.startswith(mark[:-1]) if mark.endswith(b"*") else word == mark
