"""A flow as a graph, and the graph as text, mermaid or dot (`picture` makes svg of it). Pure: no disk, no library."""

from __future__ import annotations

from doflow.flow import plan as plans
from doflow.flow.model import Flow, Step
from doflow.flow.plan import Node, Plan
from doflow.util.records import dataclass

FORMATS = ("text", "mermaid", "dot", "svg")


@dataclass(frozen=True, slots=True)
class Box:
    """A node: `shape` is step, shell, review, phases (one task each, also of items), gate, clarify, route or pause."""

    id: str
    title: str
    words: str
    shape: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """`to` comes after `start`; `when` = the marker that leads there."""

    start: str
    to: str
    when: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    about: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def graph(flow: Flow, plan: Plan) -> Graph:
    """All nodes that can run, the order they keep, and for each router one way per marker."""
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
    nodes = [node for node in plan.nodes if not _behind(node, plan) or node.name in reached]
    boxes = [_box(node, flow) for node in nodes]
    names = {box.id for box in (*boxes, *pauses)}
    kept = tuple(arrow for arrow in arrows.values() if arrow.start in names and arrow.to in names)
    return Graph(flow.name, flow.about, _sorted((*boxes, *pauses), kept), kept)


def _sorted(boxes: tuple[Box, ...], arrows: tuple[Arrow, ...]) -> tuple[Box, ...]:
    """Nothing before what it waits for; else as the flow says it."""
    left, done, found = list(boxes), set[str](), list[Box]()
    while left:
        ready = (box for box in left if all(arrow.start in done for arrow in arrows if arrow.to == box.id))
        box = next(ready, left[0])
        left.remove(box)
        done.add(box.id)
        found.append(box)
    return tuple(found)


def _behind(node: Node, plan: Plan) -> bool:
    return bool(node.router) or node.step not in plan.pipeline


def _follow(
    flow: Flow, plan: Plan, step: Step, markers: dict[str, str], arrows: dict[tuple[str, str], Arrow],
    pauses: list[Box], seen: set[tuple[str, str]],
) -> None:  # fmt: skip
    """The ways on from a router, and from the routers that they meet."""
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
        order = plans.active(plan, known)
        before = plans.follows(plan, order)
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
    special = step is not None and node.role == "step" and step.kind in ("shell", "review")
    shape = step.kind if special and step else {"each": "phases"}.get(node.role, node.role)
    words = node.doc
    if node.role == "step" and step and step.makes and not words.startswith("makes"):
        words = f"{words} → {', '.join(step.makes)}"
    return Box(node.name, title, " ".join(words.split()), shape)


def text(graph: Graph) -> str:
    """One line per node, in order; what it waits for is said where it is not simply the line above."""
    signs = {"gate": "||", "clarify": "??", "route": "<>", "pause": "||", "phases": "##", "shell": "$ ", "review": "=="}
    lines = [f"{graph.name}: {graph.about}" if graph.about else graph.name]
    width = max((len(box.title) for box in graph.boxes), default=0)
    above = ""
    titles = {box.id: box.title for box in graph.boxes}
    for box in graph.boxes:
        into = [arrow for arrow in graph.arrows if arrow.to == box.id]
        plain = [arrow.start for arrow in into if not arrow.when] == [above] or (not into and not above)
        after = "" if plain and len(into) < 2 else "   after " + ", ".join(_said(arrow, titles) for arrow in into)
        after = "   at once" if not into and above else after
        lines.append(f"  {signs.get(box.shape, '. ')} {box.title.ljust(width)}  {box.words}{after}".rstrip())
        above = box.id
    return "\n".join(lines) + "\n"


def _said(arrow: Arrow, titles: dict[str, str]) -> str:
    return f"{titles[arrow.start]} [{arrow.when}]" if arrow.when else titles[arrow.start]


def mermaid(graph: Graph) -> str:
    signs = {
        "gate": ("{{", "}}"), "clarify": ("{{", "}}"), "route": ("{", "}"),
        "pause": ("([", "])"), "phases": ("[[", "]]"), "shell": ("[/", "/]"),
    }  # fmt: skip
    ids = {box.id: f"n{place}" for place, box in enumerate(graph.boxes)}
    lines = ["flowchart TD"]
    for box in graph.boxes:
        left, right = signs.get(box.shape, ("[", "]"))
        label = _marked(box.title) + (f"<br/>{_marked(short(box.words))}" if box.words else "")
        lines.append(f'  {ids[box.id]}{left}"{label}"{right}')
    for arrow in graph.arrows:
        when = f'|"{_marked(arrow.when)}"|' if arrow.when else ""
        lines.append(f"  {ids[arrow.start]} -->{when} {ids[arrow.to]}")
    return "\n".join(lines) + "\n"


def _marked(words: str) -> str:
    """Mermaid knows entities by `#name;`; everything that could end a label or start markup becomes one."""
    table = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", ";": "#59;", "\\": "#92;"}
    return "".join(table.get(sign, sign) for sign in " ".join(words.split()))


def dot(graph: Graph) -> str:
    """A picture, nothing more: what runs is written by `dot.writing`."""
    shapes = {
        "gate": "octagon", "clarify": "octagon", "route": "diamond", "pause": "oval", "phases": "box3d", "shell": "cds",
    }  # fmt: skip
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif"];']
    for box in graph.boxes:
        label = _quoted(f"{box.title}\n{short(box.words)}" if box.words else box.title)
        lines.append(f"  {_quoted(box.id)} [label={label}, shape={shapes.get(box.shape, 'box')}];")
    for arrow in graph.arrows:
        label = f" [label={_quoted(arrow.when)}]" if arrow.when else ""
        lines.append(f"  {_quoted(arrow.start)} -> {_quoted(arrow.to)}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(words: str) -> str:
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def short(words: str, limit: int = 60) -> str:
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
