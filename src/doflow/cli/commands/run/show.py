"""`doflow show FLOW`: the plan of a flow as a graph, and which file each step comes from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from doflow.cli.output import say, say_json, table, warn
from doflow.config import project
from doflow.flow import diagram as drawing, diagram_svg as picture
from doflow.flow.model import Flow, Step
from doflow.flow.parsing import loader as load, static_checks as foresight
from doflow.util.errors import DoflowError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from doflow.flow.diagram import Graph

ABOUT = "A flow as a graph: its steps, phases, gates, questions and routes. Without FLOW: which flows there are."
EXAMPLES = """\
  doflow show tiny
  doflow show tiny --resolved              which file each step and prompt comes from
  doflow show tiny --format mermaid        for a README
  doflow show tiny --format svg > tiny.svg"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("flow", nargs="?", default="", help="the flow (default: list them)")
    parser.add_argument("--resolved", action="store_true", help="which file each step and each prompt comes from")
    parser.add_argument("--format", choices=drawing.FORMATS, default="text", help="how to draw it (default: text)")
    parser.add_argument("--json", action="store_true", help="nodes and edges as one JSON document")


def show(args: Namespace) -> int:
    opened = project.open_(project.find(), os.environ)
    if not args.flow:
        return _list(opened, args.json)
    if args.flow not in opened.about:
        raise _unknown(opened, args.flow)
    flow: Flow = opened.flow(args.flow)
    drawn = drawing.graph(flow, opened.plan(args.flow))
    if args.json:
        say_json({**_plain(drawn), "resolved": [_resolved(step, flow, opened) for step in flow.steps]})
    elif args.resolved:
        head = ("STEP", "KIND", "FROM", "PROMPT")
        rows = [_resolved(step, flow, opened) for step in flow.steps]
        say(f"{flow.name}: {_place(flow.file, opened)}")
        table([head, *((row["step"], row["kind"], row["from"], row["prompt"]) for row in rows)], "  ")
    elif args.format == "text":
        for line in drawing.text(drawn).splitlines():
            say(line)
    else:
        draw = {"mermaid": drawing.mermaid, "dot": _pipeline(flow), "svg": picture.svg}[args.format]
        sys.stdout.write(draw(drawn))
    for problem in foresight.unreached(flow):
        warn(f"warning: {problem}")
    return 0


def _pipeline(flow: Flow) -> Callable[[Graph], str]:
    """A flow drawn as a pipeline; what is a pipeline already is shown as it stands, statuses and all."""
    from doflow.flow.dot import generate as writing, parser as reading

    if flow.file.endswith((".dot", ".gv")):
        return lambda _: reading.read(flow.file).text
    return lambda drawn: writing.of_flow(flow, drawn, writing.Wish())


def _list(opened: project.Project, as_json: bool) -> int:
    rows = [(name, about, _place(opened.flow(name).file, opened)) for name, about in opened.about.items()]
    if as_json:
        say_json([{"flow": name, "about": about, "file": file} for name, about, file in rows])
    else:
        table(rows)
    return 0


def _unknown(opened: project.Project, name: str) -> DoflowError:
    import difflib

    if name in opened.broken:
        return DoflowError(opened.broken[name])
    near = difflib.get_close_matches(name, opened.about, 1)
    hint = f"did you mean {near[0]}?" if near else f"flows: {', '.join(opened.about)}"
    return UsageError(f"there is no flow {name}", hint)


def _resolved(step: Step, flow: Flow, opened: project.Project) -> dict[str, str]:
    place = _place(step.origin.file or flow.file, opened)
    line = f":{step.origin.line}" if step.origin.line else ""
    prompt = ""
    if step.prompt is not None:
        where = "packaged" if step.prompt.packaged else "flows/prompts"
        prompt = f"{where}/{step.prompt.name}" if step.prompt.name else "in the flow"
    return {"step": step.id, "kind": step.kind, "from": f"{place}{line}", "prompt": prompt}


def _place(file: str, opened: project.Project) -> str:
    """A file as a person would name it: from the project, or as one of the packaged ones."""
    full = os.path.join(opened.root, file)
    shipped = os.path.join(str(load.packaged()), "")
    if full.startswith(shipped):
        return f"packaged/{full.removeprefix(shipped)}"
    return os.path.relpath(full, opened.root) if full.startswith(f"{opened.root}/") else full


def _plain(drawn: Graph) -> dict[str, Any]:
    return {
        "flow": drawn.name,
        "about": drawn.about,
        "nodes": [{"name": box.id, "role": box.shape, "about": box.words} for box in drawn.boxes],
        "edges": [{"from": arrow.start, "to": arrow.to, "when": arrow.when} for arrow in drawn.arrows],
    }
