"""Medians, minima and ratios to the base row, and the targets they are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.measure import Sample

#: scene, size → tool → samples in the order of the rounds (shorter if the tool failed)
Figures = dict[tuple[str, int], dict[str, list[Sample]]]

LIMIT = 160 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """The ratio to the base row that a tool must not exceed in a scene. `busy`: it never waits, so on a shared machine
    its CPU time counts too."""

    scene: str
    tool: str
    most: float
    sizes: tuple[int, ...]
    busy: bool = False


TARGETS = (
    Target("no-op", "doit FLOW", 1.4, (10, 100, 1000), busy=True),
    Target("no-op", "doflow run FLOW", 1.0, (10, 100, 1000), busy=True),
    Target("begin, cold", "doit FLOW", 2.2, (10, 100, 1000)),
    Target("begin, warm", "doit FLOW", 1.8, (10, 100, 1000)),
    Target("chain", "doit FLOW", 1.6, (1000,)),
    Target("chain, bare", "doit FLOW", 1.6, (1000,)),
    Target("chain, commits", "doit FLOW", 2.5, (100, 1000)),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """To the base row, by wall clock in pairs of the same round, by minima, and by CPU time in pairs."""

    wall: float
    least: float
    cpu: float


def ratio(mine: Sequence[Sample], base: Sequence[Sample]) -> Ratio:
    pairs = list(zip(mine, base, strict=False))
    return Ratio(
        median(a.wall / b.wall for a, b in pairs),
        min(a.wall for a in mine) / min(b.wall for b in base),
        median(a.cpu / b.cpu for a, b in pairs),
    )


def lines(scene: str, about: str, figures: Figures, base: str) -> list[str]:
    """One table: a row per tool, a column per size."""
    sizes = [size for name, size in figures if name == scene]
    tools = list(dict.fromkeys(tool for size in sizes for tool in figures[scene, size]))
    rows = [f"### {scene}: {about}", "", "| tool | " + " | ".join(f"{size:,} steps" for size in sizes) + " |"]
    rows.append("|---" * (len(sizes) + 1) + "|")
    for tool in tools:
        cells = [_cell(figures[scene, size], tool, base) for size in sizes]
        rows.append(f"| {tool} | " + " | ".join(cells) + " |")
    return [*rows, ""]


def _cell(columns: Mapping[str, Sequence[Sample]], tool: str, base: str) -> str:
    mine = columns.get(tool)
    if mine is None:
        return "not tried"
    if not mine:
        return "failed"
    walls = [sample.wall for sample in mine]
    cpu = median(sample.cpu for sample in mine)
    rss = max(sample.rss for sample in mine) / 1024 / 1024
    cell = f"{_ms(median(walls))} ({_ms(min(walls))}) [{_ms(cpu)}] {rss:.0f} MB"
    if columns.get(base):
        found = ratio(mine, columns[base])
        cell += f" **{found.wall:.2f}** ({found.least:.2f}) [{found.cpu:.2f}]"
    return cell


def _ms(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def misses(figures: Figures, base: str) -> list[str]:
    """Everything above its target. A ratio misses only if both the pairs and the minima exceed it: machines are shared."""
    found = []
    for target in TARGETS:
        for size in target.sizes:
            columns = figures.get((target.scene, size))
            if columns is None or target.tool not in columns:
                continue
            where = f"{target.scene}, {size:,} steps: {target.tool}"
            if not columns[target.tool] or not columns[base]:
                found.append(f"{where}: it failed, or {base} did")
                continue
            told = ratio(columns[target.tool], columns[base])
            if min(told.wall, told.least, told.cpu if target.busy else told.wall) > target.most:
                words = f"{told.wall:.2f} (minima {told.least:.2f}, CPU {told.cpu:.2f}) of {base}, target {target.most}"
                found.append(f"{where} takes {words}")
    return [*found, *_memory(figures), *_growth(figures)]


def _memory(figures: Figures) -> list[str]:
    found = []
    for (scene, size), columns in figures.items():
        for tool in ("doit FLOW", "doflow run FLOW"):
            most = max((sample.rss for sample in columns.get(tool, ())), default=0)
            if most > LIMIT:
                found.append(f"{scene}, {size:,} steps: {tool} holds {most >> 20} MB, target {LIMIT >> 20}")
    return found


def _growth(figures: Figures, tolerance: float = 1.6) -> list[str]:
    """Growth must be linear: a further step costs no more in a long chain than in a short one. Columns in which start-up
    dominates are skipped."""
    found = []
    for scene in dict.fromkeys(name for name, _ in figures):
        for tool in ("doit FLOW", "doflow run FLOW"):
            columns = [(size, column.get(tool)) for (name, size), column in figures.items() if name == scene]
            held = sorted((size, min(sample.cpu for sample in samples)) for size, samples in columns if samples)
            for (a, x), (b, y), (c, z) in zip(held, held[1:], held[2:], strict=False):
                early, late = (y - x) / (b - a), (z - y) / (c - b)
                if y - x > 0.2 * x and late > tolerance * max(early, 20e-6):
                    words = f"{late * 1e3:.2f} ms from {b:,} to {c:,} steps, {early * 1e3:.2f} ms from {a:,} to {b:,}"
                    found.append(f"{scene}: {tool} is not linear, a step costs {words}")
    return found
