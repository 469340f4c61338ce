"""`doflow show FLOW`: the plan of a flow as a graph, and the file of each step."""

from __future__ import annotations

import difflib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from doflow.cli.output import say, say_json, table, warn
from doflow.config import project
from doflow.flow import diagram
from doflow.flow.diagram import Graph
from doflow.flow.dot import generate, parser
from doflow.flow.model import Flow, Step
from doflow.flow.parsing import loader, static_checks
from doflow.util.errors import DoflowError, UsageError

ABOUT = "Draw a flow as a graph: steps, phases, gates, questions and routes. Without FLOW: list the flows."
EXAMPLES = """\
  doflow show tiny
  doflow show tiny --resolved              with the file of each step and prompt
  doflow show tiny --format mermaid        for a README
  doflow show tiny --format svg > tiny.svg"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("flow", nargs="?", default="", help="name of the flow (default: list all)")
    parser.add_argument("--resolved", action="store_true", help="show the file of each step and prompt")
    parser.add_argument("--format", choices=diagram.FORMATS, default="text", help="output format (default: text)")
    parser.add_argument("--json", action="store_true", help="print nodes and edges as JSON")


def show(args: Namespace) -> int:
    opened = project.open_project(project.find(), os.environ)
    if not args.flow:
        return _list(opened, args.json)
    if args.flow not in opened.about:
        raise _unknown(opened, args.flow)
    flow: Flow = opened.flow(args.flow)
    drawn = diagram.build_graph(flow, opened.plan(args.flow))
    if args.json:
        say_json({**_plain(drawn), "resolved": [_resolved(step, flow, opened) for step in flow.steps]})
    elif args.resolved:
        head = ("STEP", "KIND", "FROM", "PROMPT")
        rows = [_resolved(step, flow, opened) for step in flow.steps]
        say(f"{flow.name}: {_place(flow.file, opened)}")
        table([head, *((row["step"], row["kind"], row["from"], row["prompt"]) for row in rows)], "  ")
    elif args.format == "text":
        for line in diagram.text(drawn).splitlines():
            say(line)
    else:
        draw = {"mermaid": diagram.mermaid, "dot": _pipeline(flow), "svg": diagram.svg}[args.format]
        sys.stdout.write(draw(drawn))
    for problem in static_checks.unreachable_steps(flow):
        warn(f"warning: {problem}")
    return 0


def _pipeline(flow: Flow) -> Callable[[Graph], str]:
    """A flow as a DOT pipeline; a DOT file is printed unchanged, with its statuses."""
    if flow.file.endswith((".dot", ".gv")):
        return lambda _: parser.read_pipeline(flow.file).text
    return lambda drawn: generate.generate_from_flow(flow, drawn, generate.GenerateOptions())


def _list(opened: project.Project, as_json: bool) -> int:
    rows = [(name, about, _place(opened.flow(name).file, opened)) for name, about in opened.about.items()]
    if as_json:
        say_json([{"flow": name, "about": about, "file": file} for name, about, file in rows])
    else:
        table(rows)
    return 0


def _unknown(opened: project.Project, name: str) -> DoflowError:
    if name in opened.broken:
        return DoflowError(opened.broken[name])
    near = difflib.get_close_matches(name, opened.about, 1)
    hint = f"did you mean {near[0]}?" if near else f"flows: {', '.join(opened.about)}"
    return UsageError(f"unknown flow {name}", hint)


def _resolved(step: Step, flow: Flow, opened: project.Project) -> dict[str, str]:
    place = _place(step.origin.file or flow.file, opened)
    line = f":{step.origin.line}" if step.origin.line else ""
    prompt = ""
    if step.prompt is not None:
        where = "packaged" if step.prompt.packaged else "flows/prompts"
        prompt = f"{where}/{step.prompt.name}" if step.prompt.name else "in the flow"
    return {"step": step.id, "kind": step.kind, "from": f"{place}{line}", "prompt": prompt}


def _place(file: str, opened: project.Project) -> str:
    """A path for display: relative to the project, or `packaged/…`."""
    full = os.path.join(opened.root, file)
    shipped = os.path.join(str(loader.packaged_flows()), "")
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
