"""A graph as an svg: rows from top to bottom, drawn without any library. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doflow.flow import diagram as drawing
from doflow.flow.diagram import Arrow, Box, Graph

_WIDE, _HIGH, _GAP_X, _GAP_Y, _EDGE = 240, 52, 40, 44, 24


def svg(graph: Graph) -> str:
    """Rows from top to bottom: a node stands below everything it waits for; long arrows bend around."""
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
    """Each node on the row below its lowest predecessor. The graph has no circles."""
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
        "here": "#ffe27a",
        "gate": "#fde8c8",
        "clarify": "#fde8c8",
        "pause": "#f8d0d0",
        "route": "#e0e8fa",
        "shell": "#e6f2e2",
    }
    dashes = ' stroke-dasharray="5 3"' if box.shape in ("gate", "clarify", "route", "pause") else ""
    double = f'<rect x="{x + 4}" y="{y + 4}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="#eee" stroke="#444"/>'
    middle, words = x + _WIDE // 2, _escaped(drawing.short(box.words, 38))
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
