"""One program, start to end: wall clock, CPU time of its tree, its largest process, and when its first step began."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 900.0


class Failed(Exception):
    """A program that was to be measured did not do its work."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds, seconds, bytes. `wall` ends at the first step's process where that is what was asked for."""

    wall: float
    cpu: float
    rss: int


def run(argv: list[str], cwd: Path, env: Mapping[str, str], signal: Path | None = None) -> Sample:
    """Run to the end; with `signal`, a named pipe, the clock stops when somebody writes to it."""
    listener = os.open(signal, os.O_RDONLY | os.O_NONBLOCK) if signal else -1
    errors = cwd.parent / f"{cwd.name}.stderr"
    try:
        with errors.open("wb") as err:
            began = time.perf_counter()
            child = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
            heard = _heard(listener, child) if signal else 0.0
            _, status, usage = os.wait4(child.pid, 0)
            ended = time.perf_counter()
    finally:
        if listener >= 0:
            os.close(listener)
    child.returncode = os.waitstatus_to_exitcode(status)
    if (child.returncode != 0) is not bool(signal):  # a run that signals ends with its first step, which fails
        words = errors.read_text("utf-8", "replace")[-2000:]
        raise Failed(f"{' '.join(argv)} in {cwd}: exit {child.returncode}\n{words}")
    return Sample((heard or ended) - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _RSS_UNIT)


def _heard(listener: int, child: subprocess.Popen[bytes]) -> float:
    """When the first byte came through the pipe."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    if not poll.poll(PATIENCE * 1000):
        child.kill()
        child.wait()
        raise Failed(f"{child.args}: its first step did not begin within {PATIENCE:.0f} s")
    return time.perf_counter()


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
