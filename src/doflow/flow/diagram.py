"""A flow as a graph, drawn as text, Mermaid, DOT or SVG. Pure: no disk, no library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from doflow.flow import plan as plans
from doflow.flow.model import Flow, Step
from doflow.flow.plan import Node, Plan

FORMATS = ("text", "mermaid", "dot", "svg")


class Box(NamedTuple):
    """A node: `shape` is step, shell, review, phases (also one task per item), gate, clarify, route or pause."""

    id: str
    title: str
    words: str
    shape: str


class Arrow(NamedTuple):
    """`to` comes after `start`; `when` = the marker that leads there."""

    start: str
    to: str
    when: str = ""


class Graph(NamedTuple):
    name: str
    about: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def build_graph(flow: Flow, plan: Plan) -> Graph:
    """All nodes that can run, their order, and for each router one path per marker."""
    arrows: dict[tuple[str, str], Arrow] = {}
    pauses: list[Box] = []
    for node in plan.nodes:
        for dep in node.deps:
            arrows.setdefault((dep, node.name), Arrow(dep, node.name))
    seen: set[tuple[str, str]] = set()
    for step in flow.steps:
        if step.routes and step.id in plan.pipeline:
            _follow(flow, plan, step, {}, arrows, pauses, seen)
    reached = {arrow.to for arrow in arrows.values()} | {arrow.start for arrow in arrows.values()}
    first = {node.name for node in plan.nodes if not node.router and node.step in plan.pipeline}
    boxes = [_box(node, flow) for node in plan.nodes if node.name in first | reached]
    names = {box.id for box in (*boxes, *pauses)}
    kept = tuple(arrow for arrow in arrows.values() if arrow.start in names and arrow.to in names)
    return Graph(flow.name, flow.about, _sorted((*boxes, *pauses), kept), kept)


def _sorted(boxes: tuple[Box, ...], arrows: tuple[Arrow, ...]) -> tuple[Box, ...]:
    """Each node after its predecessors, otherwise in flow order."""
    left, done, found = list(boxes), set[str](), list[Box]()
    while left:
        ready = (box for box in left if all(arrow.start in done for arrow in arrows if arrow.to == box.id))
        box = next(ready, left[0])
        left.remove(box)
        done.add(box.id)
        found.append(box)
    return tuple(found)


def _follow(
    flow: Flow, plan: Plan, step: Step, markers: dict[str, str], arrows: dict[tuple[str, str], Arrow],
    pauses: list[Box], seen: set[tuple[str, str]],
) -> None:  # fmt: skip
    """The paths from a router, and from the routers on them."""
    end = plan.ends[step.id]
    for rule in step.routes:
        if (step.id, rule.when) in seen:
            continue
        seen.add((step.id, rule.when))
        if rule.pause:
            pause = Box(f"{end}|{rule.when}", "pause", rule.pause, "pause")
            pauses.append(pause)
            arrows[end, pause.id] = Arrow(end, pause.id, rule.when)
            continue
        known = {**markers, step.id: rule.when}
        order = plans.active_steps(plan, known)
        before = plans.predecessors(plan, order)
        for name in order[order.index(step.id) + 1 :]:
            first = f"{flow.name}:{name}"
            for other in before[name]:
                when = rule.when if other == step.id else ""
                arrows.setdefault((plan.ends[other], first), Arrow(plan.ends[other], first, when))
            met = flow.step(name)
            if met is not None and met.routes:
                _follow(flow, plan, met, known, arrows, pauses, seen)
                break


def _box(node: Node, flow: Flow) -> Box:
    title = node.name.removeprefix(f"{flow.name}:")
    step = flow.step(node.step)
    shape = "phases" if node.role == "each" else node.role
    if step is not None and node.role == "step" and step.kind in ("shell", "review"):
        shape = step.kind
    words = node.doc
    if node.role == "step" and step and step.makes and not words.startswith("makes"):
        words = f"{words} → {', '.join(step.makes)}"
    return Box(node.name, title, " ".join(words.split()), shape)


def text(graph: Graph) -> str:
    """One line per node, in order; its predecessors are named unless it is just the line above."""
    signs = {"gate": "||", "clarify": "??", "route": "<>", "pause": "||", "phases": "##", "shell": "$ ", "review": "=="}
    lines = [f"{graph.name}: {graph.about}" if graph.about else graph.name]
    width = max((len(box.title) for box in graph.boxes), default=0)
    above = ""
    titles = {box.id: box.title for box in graph.boxes}
    for box in graph.boxes:
        into = [arrow for arrow in graph.arrows if arrow.to == box.id]
        plain = [arrow.start for arrow in into if not arrow.when] == [above] or (not into and not above)
        after = (
            ""
            if plain and len(into) < 2
            else "   after "
            + ", ".join(
                f"{titles[arrow.start]} [{arrow.when}]" if arrow.when else titles[arrow.start] for arrow in into
            )
        )
        after = "   at once" if not into and above else after
        lines.append(f"  {signs.get(box.shape, '. ')} {box.title.ljust(width)}  {box.words}{after}".rstrip())
        above = box.id
    return "\n".join(lines) + "\n"


def mermaid(graph: Graph) -> str:
    signs = {
        "gate": ("{{", "}}"), "clarify": ("{{", "}}"), "route": ("{", "}"),
        "pause": ("([", "])"), "phases": ("[[", "]]"), "shell": ("[/", "/]"),
    }  # fmt: skip
    ids = {box.id: f"n{place}" for place, box in enumerate(graph.boxes)}
    lines = ["flowchart TD"]
    for box in graph.boxes:
        left, right = signs.get(box.shape, ("[", "]"))
        label = _marked(box.title) + (f"<br/>{_marked(shorten(box.words))}" if box.words else "")
        lines.append(f'  {ids[box.id]}{left}"{label}"{right}')
    for arrow in graph.arrows:
        when = f'|"{_marked(arrow.when)}"|' if arrow.when else ""
        lines.append(f"  {ids[arrow.start]} -->{when} {ids[arrow.to]}")
    return "\n".join(lines) + "\n"


def _marked(words: str) -> str:
    """Escape everything that could end a label or start markup as a Mermaid entity (`#name;`)."""
    table = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", ";": "#59;", "\\": "#92;"}
    return "".join(table.get(sign, sign) for sign in " ".join(words.split()))


def dot(graph: Graph) -> str:
    """A drawing only; `dot.generate` writes pipelines that run."""
    shapes = {
        "gate": "octagon", "clarify": "octagon", "route": "diamond", "pause": "oval", "phases": "box3d", "shell": "cds",
    }  # fmt: skip
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif"];']
    for box in graph.boxes:
        label = _quoted(f"{box.title}\n{shorten(box.words)}" if box.words else box.title)
        lines.append(f"  {_quoted(box.id)} [label={label}, shape={shapes.get(box.shape, 'box')}];")
    for arrow in graph.arrows:
        label = f" [label={_quoted(arrow.when)}]" if arrow.when else ""
        lines.append(f"  {_quoted(arrow.start)} -> {_quoted(arrow.to)}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(words: str) -> str:
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def shorten(words: str, limit: int = 60) -> str:
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


_WIDE, _HIGH, _GAP_X, _GAP_Y, _EDGE = 240, 52, 40, 44, 24


def svg(graph: Graph) -> str:
    """Rows from top to bottom: each node below its predecessors; long arrows bend around."""
    rows = _rows(graph)
    widest = max((len(row) for row in rows), default=1)
    full = widest * _WIDE + (widest - 1) * _GAP_X + 2 * _EDGE + 60
    high = len(rows) * (_HIGH + _GAP_Y) - _GAP_Y + 2 * _EDGE
    places = dict(_places(rows, full - 60))
    level = {name: number for number, row in enumerate(rows) for name in row}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {high}" width="{full}" height="{high}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{_escaped(graph.name)}</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>',
        f'<rect width="{full}" height="{high}" fill="#fff"/>',
    ]
    lines += [_curve(arrow, places, level[arrow.to] - level[arrow.start], full) for arrow in graph.arrows]
    lines += [_drawn(box, *places[box.id]) for box in graph.boxes]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _rows(graph: Graph) -> list[list[str]]:
    """Each node on the row below its lowest predecessor. The graph has no cycles."""
    level = {box.id: 0 for box in graph.boxes}
    for _ in graph.boxes:
        moved = False
        for arrow in graph.arrows:
            if level[arrow.to] <= level[arrow.start] < len(graph.boxes):
                level[arrow.to] = level[arrow.start] + 1
                moved = True
        if not moved:
            break
    rows: list[list[str]] = [[] for _ in range(max(level.values(), default=0) + 1)]
    for box in graph.boxes:
        rows[level[box.id]].append(box.id)
    return rows


def _places(rows: Sequence[Sequence[str]], full: int) -> Iterator[tuple[str, tuple[int, int]]]:
    for number, row in enumerate(rows):
        wide = len(row) * _WIDE + (len(row) - 1) * _GAP_X
        for place, name in enumerate(row):
            yield name, ((full - wide) // 2 + place * (_WIDE + _GAP_X), _EDGE + number * (_HIGH + _GAP_Y))


def _curve(arrow: Arrow, places: dict[str, tuple[int, int]], down: int, full: int) -> str:
    (x1, y1), (x2, y2) = places[arrow.start], places[arrow.to]
    x1, x2, y1 = x1 + _WIDE // 2, x2 + _WIDE // 2, y1 + _HIGH
    if down > 1:
        side = full - 16
        x1, y1, x2 = x1 + _WIDE // 2, y1 - _HIGH // 2, x2 + _WIDE // 2
        y2 += _HIGH // 2
        way = f"M{x1} {y1}C{side} {y1} {side} {y2} {x2} {y2}"
    else:
        way = f"M{x1} {y1}C{x1} {y1 + _GAP_Y // 2} {x2} {y2 - _GAP_Y // 2} {x2} {y2}"
    found = f'<path d="{way}" fill="none" stroke="#444" marker-end="url(#tip)"/>'
    if arrow.when:
        x, y = (full - 40, (y1 + y2) // 2) if down > 1 else ((x1 + x2) // 2 + 6, (y1 + y2) // 2 + 4)
        anchor = ' text-anchor="end"' if down > 1 else ""
        found += f'<text x="{x}" y="{y}" fill="#a40"{anchor}>{_escaped(arrow.when)}</text>'
    return found


def _drawn(box: Box, x: int, y: int) -> str:
    fill = {
        "here": "#ffe27a", "gate": "#fde8c8", "clarify": "#fde8c8",
        "pause": "#f8d0d0", "route": "#e0e8fa", "shell": "#e6f2e2",
    }  # fmt: skip
    dashes = ' stroke-dasharray="5 3"' if box.shape in ("gate", "clarify", "route", "pause") else ""
    double = f'<rect x="{x + 4}" y="{y + 4}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="#eee" stroke="#444"/>'
    middle, words = x + _WIDE // 2, _escaped(shorten(box.words, 38))
    return (
        (double if box.shape == "phases" else "")
        + f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="{fill.get(box.shape, "#f4f4f4")}" '
        f'stroke="#444"{dashes}/>'
        f'<text x="{middle}" y="{y + 21}" text-anchor="middle" font-weight="bold">{_escaped(box.title)}</text>'
        f'<text x="{middle}" y="{y + 39}" text-anchor="middle" fill="#444">{words}</text>'
    )


def _escaped(words: str) -> str:
    table = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    return "".join(table.get(sign, sign) for sign in words if sign >= " ")
