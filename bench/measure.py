"""One program, start to end: wall clock, CPU time of its tree, its largest process, and when its first step began."""

from __future__ import annotations

import atexit
import marshal
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATIENCE = 900.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Failed(Exception):
    """A program that was to be measured did not do its work."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds, seconds, bytes. `wall` ends at the first step's process where that is what was asked for."""

    wall: float
    cpu: float
    rss: int


def run(argv: list[str], cwd: Path, env: Mapping[str, str], signal: Path | None = None) -> Sample:
    """Run to the end; with `signal`, a named pipe, the clock stops at the first write to it."""
    errors = cwd.parent / f"{cwd.name}.stderr"
    program = shutil.which(argv[0], path=env["PATH"]) or argv[0]
    request = ([program, *argv[1:]], str(cwd), dict(env), str(errors), str(signal or ""), PATIENCE)
    launcher = _launcher()
    assert launcher.stdin is not None and launcher.stdout is not None
    marshal.dump(request, launcher.stdin)
    launcher.stdin.flush()
    wall, code, cpu, rss = marshal.load(launcher.stdout)
    if code is None:
        raise Failed(f"{' '.join(argv)} in {cwd}: its first step did not begin within {PATIENCE:.0f} s")
    if (code != 0) is not bool(signal):  # a run that signals ends with its first step, which fails
        words = errors.read_text("utf-8", "replace")[-2000:]
        raise Failed(f"{' '.join(argv)} in {cwd}: exit {code}\n{words}")
    return Sample(wall, cpu, rss * _RSS_UNIT)


@cache
def _launcher() -> subprocess.Popen[bytes]:
    script = str(Path(__file__).with_name("launch.py"))
    child = subprocess.Popen([sys.executable, "-I", "-S", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(child.terminate)
    return child
