"""Generate DOT pipelines from a flow or a task list. Pure.

The result passes `doflow validate`. Worker nodes inherit the graph's `prd_ref`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from doflow.flow.diagram import Box, Graph
from doflow.flow.dot.editor import write_id
from doflow.flow.dot.model import CODERGEN, COLOURS, CONDITION, EXIT, GATE, PENDING, ROUTE, SHAPES, START, TOOL
from doflow.flow.dot.parser import quoted
from doflow.flow.model import Flow, Step
from doflow.flow.tasklist import Phase, TaskList

_HANDLERS = {"shell": TOOL, "review": GATE, "gate": GATE, "clarify": GATE, "pause": GATE, "route": ROUTE}

Values = Mapping[str, str]


class GenerateOptions(NamedTuple):
    """`prd_ref` for all nodes, the worker type, and the command that checks each phase."""

    prd_ref: str = ""
    worker: str = "implementer"
    check: str = ""


class PipelineWriter:
    """Builds a DOT text: nodes with their status, then the edges between them."""

    def __init__(self, name: str, values: Values) -> None:
        listed = "".join(f"        {key}={quoted(value)}\n" for key, value in values.items() if value)
        self._lines = [
            f"digraph {write_id(name)} {{\n",
            f"    graph [\n{listed}    ];\n" if listed else "",
            "    rankdir=TB;\n",
        ]
        self._edges: list[str] = []

    def node(self, name: str, handler: str, values: Values) -> None:
        given = {"handler": handler, "shape": SHAPES[handler], "status": PENDING, **values}
        given |= {"style": "filled", "fillcolor": COLOURS[PENDING]}
        listed = "".join(f"        {key}={quoted(value)}\n" for key, value in given.items() if value)
        self._lines.append(f"\n    {write_id(name)} [\n{listed}    ];\n")

    def edge(self, start: str, to: str, label: str = "", condition: str = "") -> None:
        given = {"label": label, "condition": condition}
        listed = ", ".join(f"{key}={quoted(value)}" for key, value in given.items() if value)
        self._edges.append(f"    {write_id(start)} -> {write_id(to)}{f' [{listed}]' if listed else ''};\n")

    def text(self) -> str:
        return "".join([*self._lines, "\n", *self._edges, "}\n"])


def generate_from_flow(flow: Flow, graph: Graph, options: GenerateOptions) -> str:
    """A flow as a pipeline: agents as workers, commands as tools, every pause as a gate."""
    page = PipelineWriter(flow.name, {"label": flow.about or flow.name, "prd_ref": options.prd_ref})
    first, last = _free("start", graph), _free("exit", graph)
    page.node(first, START, {"label": "Start"})
    for box in graph.boxes:
        handler = _HANDLERS.get(box.shape, CODERGEN)
        page.node(_name(box, graph), handler, _values(box, handler, flow.step(box.title.partition(".")[0]), options))
    page.node(last, EXIT, {"label": "Exit"})
    names = {box.id: _name(box, graph) for box in graph.boxes}
    reached, left = {arrow.to for arrow in graph.arrows}, {arrow.start for arrow in graph.arrows}
    for box in graph.boxes:
        if box.id not in reached:
            page.edge(first, names[box.id])
    for arrow in graph.arrows:
        page.edge(names[arrow.start], names[arrow.to], arrow.when)
    for step in flow.steps:
        for route in step.routes:
            if not route.then and not route.pause:  # this answer ends the flow
                page.edge(f"{step.id}.route", last, route.when)
    for box in graph.boxes:
        if box.id not in left and box.shape != "pause":
            page.edge(names[box.id], last)
    return page.text()


def _values(box: Box, handler: str, step: Step | None, options: GenerateOptions) -> Values:
    label = box.words or box.title
    if handler == TOOL:
        command = step.shell or shlex.join(step.run) if step else ""
        return {"label": label, "command": command or label}
    if handler != CODERGEN:
        return {"label": label, "prompt": label if box.shape == "review" else ""}
    wanted = f"{', '.join(step.makes)} exists and passes its checks" if step and step.makes else label
    return {
        "label": label, "bead_id": box.title, "worker_type": (step.agent if step else "") or options.worker,
        "prd_ref": options.prd_ref, "acceptance": wanted,
    }  # fmt: skip


def _name(box: Box, graph: Graph) -> str:
    """The step's name; a pause is named after the answer that leads to it."""
    return box.id.removeprefix(f"{graph.name}:") if box.shape == "pause" else box.title


def _free(word: str, graph: Graph) -> str:
    taken = {_name(box, graph) for box in graph.boxes}
    while word in taken:
        word += "_"
    return word


def generate_from_tasks(tasks: TaskList, name: str, options: GenerateOptions) -> str:
    """A task list as a pipeline: a worker per phase, followed by a gate. With a command, a failing gate leads back."""
    page = PipelineWriter(name, {"label": name, "prd_ref": options.prd_ref})
    page.node("start", START, {"label": "Start"})
    before, condition = "start", ""
    for number, phase in enumerate(tasks.phases, 1):
        work, gate, good = f"phase_{number}", f"check_{number}", f"good_{number}"
        page.node(work, CODERGEN, _phase(phase, options))
        page.node(gate, GATE, {"label": f"Check {phase.title or 'all of it'}", "command": options.check})
        page.edge(before, work, condition, condition)
        page.edge(work, gate)
        before = gate
        if options.check:
            page.node(good, CONDITION, {"label": f"Is {phase.title or 'it'} good?"})
            page.edge(gate, good)
            page.edge(good, work, "fail", "fail")
            before, condition = good, "pass"
    page.node("exit", EXIT, {"label": "Exit"})
    page.edge(before, "exit", condition, condition)
    return page.text()


def _phase(phase: Phase, options: GenerateOptions) -> Values:
    names = [task.id for task in phase.tasks]
    listed = "\n".join(f"- {task.id}: {task.text}" for task in phase.tasks)
    return {
        "label": f"Phase {phase.number}: {phase.title}" if phase.title else "All tasks",
        "bead_id": names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}" if names else "all",
        "worker_type": options.worker,
        "prd_ref": options.prd_ref, "acceptance": listed,
    }  # fmt: skip
