"""`doflow show FLOW`: the plan of a flow as a graph, and the file of each step."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from doflow.cli.output import say, say_json, table, unknown_flow, warn
from doflow.config import project
from doflow.flow import diagram
from doflow.flow.diagram import Graph
from doflow.flow.dot import generate, parser
from doflow.flow.model import Flow, Step
from doflow.flow.parsing import loader, static_checks

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
        raise unknown_flow(args.flow, opened.about, opened.broken)
    flow: Flow = opened.flow(args.flow)
    drawn = diagram.build_graph(flow, opened.plan(args.flow))
    rows = [_resolved(step, flow, opened) for step in flow.steps]
    if args.json:
        say_json({**_plain(drawn), "resolved": rows})
    elif args.resolved:
        say(f"{flow.name}: {_place(flow.file, opened)}")
        table([("STEP", "KIND", "FROM", "PROMPT"), *(tuple(row.values()) for row in rows)], "  ")
    elif args.format == "text":
        for line in diagram.text(drawn).splitlines():
            say(line)
    elif args.format == "dot" and flow.file.endswith((".dot", ".gv")):  # unchanged, with its statuses
        sys.stdout.write(parser.read_pipeline(flow.file).text)
    elif args.format == "dot":
        sys.stdout.write(generate.generate_from_flow(flow, drawn, generate.GenerateOptions()))
    else:
        sys.stdout.write(diagram.mermaid(drawn) if args.format == "mermaid" else diagram.svg(drawn))
    for problem in static_checks.unreachable_steps(flow):
        warn(f"warning: {problem}")
    return 0


def _list(opened: project.Project, as_json: bool) -> int:
    rows = [(name, about, _place(opened.flow(name).file, opened)) for name, about in opened.about.items()]
    if as_json:
        say_json([{"flow": name, "about": about, "file": file} for name, about, file in rows])
    else:
        table(rows)
    return 0


def _resolved(step: Step, flow: Flow, opened: project.Project) -> dict[str, str]:
    place = _place(step.origin.file or flow.file, opened)
    line = f":{step.origin.line}" if step.origin.line else ""
    prompt = ""
    if step.prompt is not None:
        name, where = step.prompt.name, "packaged" if step.prompt.packaged else "flows/prompts"
        prompt = name[1:] if name.startswith("/") else f"{where}/{name}" if name else "in the flow"
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
