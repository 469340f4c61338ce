"""What a hook call costs an agent, against the smallest Python that reads JSON: `python -m bench.hooks [--check] [--rounds N]`.

The state holds 1000 transitions. All take turns in every round. A target is missed only if wall clock and CPU time both say so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import doflow

ENTRIES = 1000
MEDIAN, TAIL = 2.0, 3.0
BASE = 'python -c "import json"'
DOOR = Path(doflow.__file__).parent / "hooks" / "entry.py"

Row = tuple[float, float]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="default: 60")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    asked = parser.parse_args(words)
    figures = measure(asked.rounds)
    print("\n".join(table(figures)))
    missed = misses(figures)
    print("\n".join(f"MISS {line}" for line in missed) or "both targets are met: median at most 2 x, p95 at most 3 x")
    return 1 if asked.check and missed else 0


def measure(rounds: int) -> dict[str, list[Row]]:
    """Wall and CPU seconds of every call, by what was called."""
    with tempfile.TemporaryDirectory(prefix="doflow-bench-") as folder:
        calls = _calls(Path(folder))
        figures: dict[str, list[Row]] = {name: [] for name in calls}
        for turn in range(rounds + 2):
            for name, call in calls.items():
                row = call(turn)
                if turn > 1:  # the first ones compile and warm up
                    figures[name].append(row)
        return figures


def _calls(folder: Path) -> dict[str, Callable[[int], Row]]:
    env = {"HOME": str(folder / "home"), "PATH": os.environ.get("PATH", os.defpath)}
    root = folder / "project"
    for made in (root / ".git", folder / "home"):
        made.mkdir(parents=True)
    door = (sys.executable, "-I", "-S", str(DOOR))
    console = (str(Path(sys.executable).with_name("doflow")), "hook")
    base = {"session_id": "bench", "cwd": str(root)}
    before = base | {"tool_name": "Agent", "tool_input": {"subagent_type": "bash-expert", "prompt": "x" * 2000}}
    after = base | {"agent_type": "bash-expert", "last_assistant_message": "done " * 400}

    def call(argv: tuple[str, ...], payload: dict[str, object] | None, turn: int) -> Row:
        data = json.dumps(payload | {"agent_id": f"b{argv[0]}{turn}"}).encode() if payload else b""
        return _timed(argv, data, root, env)

    _timed((*door, "SessionStart"), json.dumps(base).encode(), root, env)
    _fill(folder / "home")
    return {
        BASE: lambda turn: call((sys.executable, "-c", "import json"), None, turn),
        "PreToolUse, as installed": lambda turn: call((*door, "PreToolUse"), before, turn),
        "SubagentStop, as installed": lambda turn: call((*door, "SubagentStop"), after, turn),
        "doflow hook PreToolUse": lambda turn: call((*console, "PreToolUse"), before, turn),
        "doflow hook SubagentStop": lambda turn: call((*console, "SubagentStop"), after, turn),
    }


def _timed(argv: tuple[str, ...], data: bytes, cwd: Path, env: dict[str, str]) -> Row:
    before = os.times()
    began = time.perf_counter()
    done = subprocess.run(argv, input=data, cwd=cwd, env=env, capture_output=True, check=False)
    wall = time.perf_counter() - began
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr.decode()}")
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def _fill(home: Path) -> None:
    """A session that has come a long way."""
    (path,) = home.glob(".claude/state/doflow/*/bench/pipeline-state.json")
    doc = json.loads(path.read_text())
    entry = {
        "agent": "bash-expert",
        "timestamp": "2026-01-01T00:00:00Z",
        "state_before": "EXECUTING",
        "state_after": "EXECUTING",
    }
    text = "what was found out " * 100
    doc |= {"state": "EXECUTING", "history": [entry] * ENTRIES, "context": dict.fromkeys(doc["context"], text)}
    path.write_text(json.dumps(doc))


def ratios(mine: list[Row], base: list[Row], which: int) -> tuple[float, float]:
    """Median against median, 95th percentile against 95th percentile."""
    a, b = (sorted(row[which] for row in rows) for rows in (mine, base))
    tail = max(0, -(-len(a) * 95 // 100) - 1)
    return statistics.median(a) / max(statistics.median(b), 1e-3), a[tail] / max(b[tail], 1e-3)


def table(figures: dict[str, list[Row]]) -> list[str]:
    lines = ["| call | ms, median (min) | p95 | ratio: **median** (p95) [CPU median] |", "|---|---|---|---|"]
    for name, rows in figures.items():
        wall = sorted(row[0] * 1000 for row in rows)
        middle, tail = ratios(rows, figures[BASE], 0)
        cpu = ratios(rows, figures[BASE], 1)[0]
        p95 = wall[max(0, -(-len(wall) * 95 // 100) - 1)]
        cells = (
            f"{statistics.median(wall):.1f} ({wall[0]:.1f})",
            f"{p95:.1f}",
            f"**{middle:.2f}** ({tail:.2f}) [{cpu:.2f}]",
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def misses(figures: dict[str, list[Row]]) -> list[str]:
    found = []
    for name, rows in figures.items():
        (wall, tail), (cpu, busy) = (ratios(rows, figures[BASE], which) for which in (0, 1))
        if wall > MEDIAN and cpu > MEDIAN:
            found.append(f"{name}: {wall:.2f} x, at most {MEDIAN:g}")
        if tail > TAIL and busy > TAIL:
            found.append(f"{name}: p95 {tail:.2f} x, at most {TAIL:g}")
    return found


if __name__ == "__main__":
    sys.exit(main())
