"""Pipelines that are written anew: a flow as DOT, a task list as DOT. Pure.

What is written passes `doflow validate`. A node of a worker gets the `prd_ref` of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from doflow.flow.diagram import Box, Graph
from doflow.flow.dot.editor import written
from doflow.flow.dot.model import CODERGEN, COLOURS, CONDITION, EXIT, GATE, PENDING, ROUTE, SHAPES, START, TOOL
from doflow.flow.dot.scanner import quoted
from doflow.flow.model import Flow, Step
from doflow.flow.tasklist import Phase, TaskList
from doflow.util.records import dataclass

_HANDLERS = {"shell": TOOL, "review": GATE, "gate": GATE, "clarify": GATE, "pause": GATE, "route": ROUTE}

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the writer is told: `prd_ref` for all, who works (`worker`), and the command that checks each phase."""

    prd_ref: str = ""
    worker: str = "implementer"
    check: str = ""


class Page:
    """A DOT text that grows: nodes with their status, then the ways between them."""

    def __init__(self, name: str, values: Values) -> None:
        listed = "".join(f"        {key}={quoted(value)}\n" for key, value in values.items() if value)
        self._lines = [
            f"digraph {written(name)} {{\n",
            f"    graph [\n{listed}    ];\n" if listed else "",
            "    rankdir=TB;\n",
        ]
        self._ways: list[str] = []

    def node(self, name: str, handler: str, values: Values) -> None:
        said = {"handler": handler, "shape": SHAPES[handler], "status": PENDING, **values}
        said |= {"style": "filled", "fillcolor": COLOURS[PENDING]}
        listed = "".join(f"        {key}={quoted(value)}\n" for key, value in said.items() if value)
        self._lines.append(f"\n    {written(name)} [\n{listed}    ];\n")

    def way(self, start: str, to: str, label: str = "", condition: str = "") -> None:
        said = {"label": label, "condition": condition}
        listed = ", ".join(f"{key}={quoted(value)}" for key, value in said.items() if value)
        self._ways.append(f"    {written(start)} -> {written(to)}{f' [{listed}]' if listed else ''};\n")

    def text(self) -> str:
        return "".join([*self._lines, "\n", *self._ways, "}\n"])


def of_flow(flow: Flow, graph: Graph, wish: Wish) -> str:
    """A flow as a pipeline: agents as workers, commands as tools, every pause for a person as a gate."""
    page = Page(flow.name, {"label": flow.about or flow.name, "prd_ref": wish.prd_ref})
    first, last = _free("start", graph), _free("exit", graph)
    page.node(first, START, {"label": "Start"})
    for box in graph.boxes:
        handler = _HANDLERS.get(box.shape, CODERGEN)
        page.node(_name(box, graph), handler, _values(box, handler, flow.step(box.title.partition(".")[0]), wish))
    page.node(last, EXIT, {"label": "Exit"})
    names = {box.id: _name(box, graph) for box in graph.boxes}
    reached, left = {arrow.to for arrow in graph.arrows}, {arrow.start for arrow in graph.arrows}
    for box in graph.boxes:
        if box.id not in reached:
            page.way(first, names[box.id])
    for arrow in graph.arrows:
        page.way(names[arrow.start], names[arrow.to], arrow.when)
    for step in flow.steps:
        for route in step.routes:
            if not route.then and not route.pause:  # this answer is the end
                page.way(f"{step.id}.route", last, route.when)
    for box in graph.boxes:
        if box.id not in left and box.shape != "pause":
            page.way(names[box.id], last)
    return page.text()


def _values(box: Box, handler: str, step: Step | None, wish: Wish) -> Values:
    label = box.words or box.title
    if handler == TOOL:
        import shlex

        command = step.shell or shlex.join(step.run) if step else ""
        return {"label": label, "command": command or label}
    if handler != CODERGEN:
        return {"label": label, "prompt": label if box.shape == "review" else ""}
    wanted = f"{', '.join(step.makes)} is there and keeps its contract" if step and step.makes else label
    return {
        "label": label, "bead_id": box.title, "worker_type": (step.agent if step else "") or wish.worker,
        "prd_ref": wish.prd_ref, "acceptance": wanted,
    }  # fmt: skip


def _name(box: Box, graph: Graph) -> str:
    """The step's own name; a pause is named for the answer that leads there."""
    return box.id.removeprefix(f"{graph.name}:") if box.shape == "pause" else box.title


def _free(word: str, graph: Graph) -> str:
    taken = {_name(box, graph) for box in graph.boxes}
    while word in taken:
        word += "_"
    return word


def of_tasks(tasks: TaskList, name: str, wish: Wish) -> str:
    """A task list as a pipeline: each phase a worker, and after it a gate. With a command the gate leads back on fail."""
    page = Page(name, {"label": name, "prd_ref": wish.prd_ref})
    page.node("start", START, {"label": "Start"})
    before, condition = "start", ""
    for number, phase in enumerate(tasks.phases, 1):
        work, gate, good = f"phase_{number}", f"check_{number}", f"good_{number}"
        page.node(work, CODERGEN, _phase(phase, wish))
        page.node(gate, GATE, {"label": f"Check {phase.title or 'all of it'}", "command": wish.check})
        page.way(before, work, condition, condition)
        page.way(work, gate)
        before = gate
        if wish.check:
            page.node(good, CONDITION, {"label": f"Is {phase.title or 'it'} good?"})
            page.way(gate, good)
            page.way(good, work, "fail", "fail")
            before, condition = good, "pass"
    page.node("exit", EXIT, {"label": "Exit"})
    page.way(before, "exit", condition, condition)
    return page.text()


def _phase(phase: Phase, wish: Wish) -> Values:
    listed = "\n".join(f"- {task.id}: {task.text}" for task in phase.tasks)
    return {
        "label": f"Phase {phase.number}: {phase.title}" if phase.title else "All tasks",
        "bead_id": _joined(task.id for task in phase.tasks), "worker_type": wish.worker,
        "prd_ref": wish.prd_ref, "acceptance": listed,
    }  # fmt: skip


def _joined(names: Iterable[str]) -> str:
    found: Sequence[str] = list(names)
    return found[0] if len(found) == 1 else f"{found[0]}-{found[-1]}" if found else "all"
