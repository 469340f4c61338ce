"""Finding and killing processes by a mark in their environment: for when whoever started them is gone."""

from __future__ import annotations

import os
import time


def kill(mark: bytes) -> None:
    """Kill every process whose environment holds the mark (where there is a /proc to see it)."""
    for _ in range(100 if os.path.isdir("/proc/self") else 0):
        found = [name for name in os.listdir("/proc") if name.isdigit() and _marked(name, mark)]
        if not found:
            return
        for name in found:
            try:
                os.kill(int(name), 9)
            except OSError:
                pass  # it ended while we looked
        time.sleep(0.01)


def _marked(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
