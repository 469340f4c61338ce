"""The benchmark: every scene, every tool, interleaved, as a table; `--check` compares it with the targets."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import places, table, tools
from bench.measure import Failed
from bench.scenes import SCENES, Scene
from bench.table import Figures
from bench.tool import Tool

_NOTE = """\
ms: median (min) [CPU of the whole tree], largest process; then the ratio to `{base}`:
**median of the pairs of a round** (ratio of the minima) [ratio of CPU].
Runs are interleaved; on a shared machine read ratios, not milliseconds.
"""


def main(words: list[str] | None = None) -> int:
    asked = _arguments(words)
    folder = Path(tempfile.mkdtemp(prefix="doflow-bench-", dir=asked.dir))
    try:
        return _measure(asked, folder)
    finally:
        if asked.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _measure(asked: argparse.Namespace, folder: Path) -> int:
    (folder / "home").mkdir()
    binaries = places.build(folder / "places")
    envs = {name: places.variables(binary, folder / "home") for name, binary in binaries.items()}
    known = [tool for tool in tools.installed(envs) if tool.base or not asked.tool or tool.name in asked.tool]
    base = next(tool.name for tool in known if tool.base)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {machine}, load {load}")
    print(_NOTE.format(base=base))
    figures: Figures = {}
    for scene in SCENES:
        if not asked.only or scene.name in asked.only:
            for size, rounds in _columns(scene, asked):
                _column(scene, size, rounds, known, folder, figures)
            print("\n".join(table.lines(scene.name, scene.about, figures, base)), flush=True)
    missed = table.misses(figures, base)
    print("\n".join(f"MISS {line}" for line in missed) or "all measured targets are met")
    return 1 if asked.check and missed else 0


def _columns(scene: Scene, asked: argparse.Namespace) -> list[tuple[int, int]]:
    every = [*zip(scene.sizes, scene.rounds, strict=True), *(scene.big if asked.big else ())]
    if asked.quick:
        every = [(size, min(rounds, 5)) for size, rounds in every if size <= 100]
    if asked.size:
        every = [(size, rounds) for size, rounds in every if size in asked.size]
    return [(size, asked.rounds or rounds) for size, rounds in every]


def _column(scene: Scene, size: int, rounds: int, known: list[Tool], folder: Path, figures: Figures) -> None:
    """One size of one scene: all tools are set up, then they take turns."""
    place = Path(tempfile.mkdtemp(dir=folder))
    chain = scene.chain(size, place)
    taking = {tool: place / f"tool{at}" for at, tool in enumerate(known) if size <= tool.most and _fits(tool, scene)}
    column = figures[scene.name, size] = {tool.name: [] for tool in taking}
    for tool, root in list(taking.items()):
        _try(partial(scene.set_up, tool, root, chain), taking, tool)
    for turn in range(rounds):
        order = list(taking.items())
        for tool, root in order[turn % len(order) :] + order[: turn % len(order)]:
            found = _try(partial(scene.sample, tool, root, chain, turn), taking, tool)
            if found is not None:
                column[tool.name].append(found)
    shutil.rmtree(place, ignore_errors=True)


def _fits(tool: Tool, scene: Scene) -> bool:
    return isinstance(tool, tools.Doflow | tools.Doit) or (not scene.inner and (tool.remembers or scene.fresh))


def _try(deed, taking, tool: Tool):
    """The result of the call; a tool that fails is reported and excluded from then on."""
    try:
        return deed()
    except Failed as error:
        print(f"{tool.name}: {error}", file=sys.stderr)
        taking.pop(tool)
        return None


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--big", action="store_true", help="chains of 10,000 steps too (takes many minutes)")
    parser.add_argument("--quick", action="store_true", help="only up to 100 steps, few rounds")
    parser.add_argument("--only", action="append", metavar="SCENE", help=f"one of: {'; '.join(s.name for s in SCENES)}")
    parser.add_argument("--tool", action="append", metavar="TOOL", help="only this row (and the base row)")
    parser.add_argument("--size", action="append", type=int, metavar="N", help="only chains of this length")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is measured")
    parser.add_argument("--dir", metavar="DIR", help="where to work (default: the system's temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the projects that were measured")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
