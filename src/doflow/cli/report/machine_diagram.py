"""A machine as a picture with the current position in it: text, mermaid, dot, svg. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doflow.flow import diagram as drawing, diagram_svg as picture
from doflow.flow.diagram import Arrow, Box, Graph
from doflow.hooks import machine_check as proof

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

FORMATS = drawing.FORMATS


def draw(machine: Machine, here: str, form: str) -> str:
    """`here` = the state that a session is in; '' = none."""
    if form == "text":
        return text(machine, here)
    if form == "svg":
        return picture.svg(_forward(_graph(machine, here)))
    drawn = _graph(machine, here)
    if form == "dot":
        return drawing.dot(drawn)
    found = drawing.mermaid(drawn)
    states = list(machine["states"])
    return f"{found}  style n{states.index(here)} fill:#ffe27a,stroke-width:3px\n" if here in states else found


def text(machine: Machine, here: str) -> str:
    """One state per line: who may run, who leads where; an arrow at the current one."""
    lines = [f"{machine['machine']}: {machine['about']}" if machine["about"] else machine["machine"]]
    width = max(len(name) for name in machine["states"])
    for name, rules in machine["states"].items():
        sign = "->" if name == here else "  "
        lines.append(f" {sign} {name.ljust(width)}  {rules['about']}".rstrip())
        lines.append(f"    {' ' * width}  may run: {', '.join(rules['allow']) or 'nobody'}")
        lines += [f"    {' ' * width}  {agents} -> {to}" for to, agents in _moves(machine, name).items()]
    if machine["complete"]:
        lines.append(f"    {machine['complete']} is set by a person: doflow machine complete")
    return "\n".join(lines) + "\n"


def _graph(machine: Machine, here: str) -> Graph:
    boxes = tuple(
        Box(name, f"{name} (here)" if name == here else name, rules["about"], "here" if name == here else "step")
        for name, rules in machine["states"].items()
    )
    arrows = [Arrow(name, to, agents) for name in machine["states"] for to, agents in _moves(machine, name).items()]
    return Graph(machine["machine"], machine["about"], boxes, tuple(arrows))


def _forward(graph: Graph) -> Graph:
    """Without what leads back: that is said in the box, since rows go down only."""
    rank = {box.id: place for place, box in enumerate(graph.boxes)}
    forward = tuple(arrow for arrow in graph.arrows if rank[arrow.to] > rank[arrow.start])
    back = {arrow.start: f"back to {arrow.to}: {arrow.when}" for arrow in graph.arrows if arrow not in forward}
    boxes = tuple(Box(box.id, box.title, back.get(box.id, box.words), box.shape) for box in graph.boxes)
    return Graph(graph.name, graph.about, boxes, forward)


def _moves(machine: Machine, state: str) -> dict[str, str]:
    """Where a state leads, and by whom."""
    found: dict[str, list[str]] = {}
    for agent, to in proof.moves(machine, state):
        found.setdefault(to, []).append(agent)
    return {to: ", ".join(agents) for to, agents in found.items()}
