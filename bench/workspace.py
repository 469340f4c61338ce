"""What a run waits for beside its agent, in the view of a small and of a large project.

    python -m bench.workspace [--files 50000] [--rounds 3] [--check]

A short and a long flow of agents give the time of a further step, at 100 files and at many. What git itself needs to write the
person's index once (`git read-tree -m HEAD`) is measured in the same round and taken off the large one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.fence import FEW, MANY, new_project, run_flow

SMALL = 100
TARGET = 1.5


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.workspace", description="What a workspace costs per step.")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--check", action="store_true", help=f"exit 1 if it is more than {TARGET:g} times in every round"
    )
    asked = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="doflow-bench-"))
    try:
        places = {count: new_project(folder / str(count), count, "overlay") for count in (SMALL, asked.files)}
        for root, env in places.values():
            run_flow(f"agent{FEW}", root, env)  # the machine is probed once
        ratios = [_round(places, asked.files) for _ in range(asked.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    middle, least = statistics.median(ratios), min(ratios)
    print(
        f"a step at {asked.files} files takes {middle:.2f} x one at {SMALL} files (least {least:.2f}), without one write of the index"
    )
    return 1 if asked.check and least > TARGET else 0


def _round(places: dict[int, tuple[Path, dict[str, str]]], many: int) -> float:
    steps = {}
    for count, (root, env) in places.items():
        spent = [run_flow(f"agent{number}", root, env)[1] for number in (FEW, MANY)]
        steps[count] = (spent[1] - spent[0]) / (MANY - FEW)
    index = min(_wall(("git", "read-tree", "-m", "HEAD"), *places[many]) for _ in range(3))
    ratio = (steps[many] - index) / steps[SMALL]
    print(f"  a step: {steps[SMALL] * 1000:.0f} ms at {SMALL} files, {steps[many] * 1000:.0f} ms at {many}, "
          f"one write of the index {index * 1000:.0f} ms: {ratio:.2f}", flush=True)  # fmt: skip
    return ratio


def _wall(argv: tuple[str, ...], root: Path, env: dict[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(argv, cwd=root, env=env, check=True, capture_output=True)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
