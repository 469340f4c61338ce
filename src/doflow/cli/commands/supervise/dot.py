"""`doflow dot`: a DOT pipeline looked at, changed and moved on, without losing its comments and its layout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.cli import output as commands
from doflow.config import dot_flows as catalogue, project
from doflow.flow.dot import (
    checkpoint,
    editor as editing,
    order as graph,
    parser as reading,
    transitions as moves,
    validate as checks,
)
from doflow.flow.dot.model import CODERGEN, HANDLERS, PENDING, SHAPES, Node, Pipeline
from doflow.util import atomic_files as files
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "DOT pipelines: their statuses, their nodes and edges, and new ones from a flow or a task list"
EXAMPLES = """\
  doflow dot status auth.dot                     what each node is at, and what can begin
  doflow dot node add auth.dot impl --set handler=codergen --set prd_ref=PRD-AUTH-001 --after start --before gate
  doflow dot node modify auth.dot impl --set acceptance="all tests pass"
  doflow dot edge add auth.dot gate good
  doflow dot transition auth.dot impl active
  doflow dot generate --tasks specs/001-login/tasks.md --prd-ref PRD-AUTH-001 --check "pytest -q" > auth.dot
  doflow dot generate --flow feature             a flow as a pipeline
"""


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="status|node|edge|transition|restart|generate", required=True)
    status = verbs.add_parser("status", help="what each node is at, and what can begin")
    _file(status)
    _node_arguments(verbs.add_parser("node", help="add, modify or remove a node"))
    _edge_arguments(verbs.add_parser("edge", help="add or remove an edge"))
    moving = verbs.add_parser("transition", help="move a node to another status, as the table allows it")
    _file(moving)
    moving.add_argument("node", help="its id")
    moving.add_argument(
        "status", help="active, impl_complete, validated, failed; pending = take the diamond's retry edge"
    )
    moving.add_argument("--expect", default="", metavar="STATUS", help="refuse if it is not at this status now")
    moving.add_argument("--note", default="", help="why; kept in the log")
    _file(verbs.add_parser("restart", help="every node pending again"))
    making = verbs.add_parser("generate", help="a new pipeline, on standard output or into --out")
    source = making.add_mutually_exclusive_group(required=True)
    source.add_argument("--flow", default="", help="from this flow")
    source.add_argument("--tasks", default="", metavar="FILE", help="from this task list: one worker per phase")
    making.add_argument("--name", default="", help="the graph's name (default: the flow's, the file's)")
    making.add_argument("--prd-ref", default="", help="graph attribute prd_ref, which every worker's node inherits")
    making.add_argument("--worker-type", default="implementer", help="worker_type of the workers' nodes")
    making.add_argument("--check", default="", metavar="COMMAND", help="what each gate runs; a fail leads back")
    making.add_argument("--out", default="", metavar="FILE", help="write it there; never over something else")
    making.add_argument("--json", action="store_true", help="one JSON document")


def _file(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="PIPELINE", help="a DOT file, or the name of a pipeline in doflow.yaml")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _node_arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="what", metavar="add|modify|remove", required=True)
    for name in ("add", "modify", "remove"):
        one = deeds.add_parser(name)
        _file(one)
        one.add_argument("node", metavar="ID", help="its id")
        if name != "remove":
            one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an attribute; may repeat")
        if name == "modify":
            one.add_argument("--unset", action="append", default=[], metavar="KEY", help="take an attribute out")
        if name == "add":
            one.add_argument("--after", action="append", default=[], metavar="ID", help="an edge from there")
            one.add_argument("--before", action="append", default=[], metavar="ID", help="an edge to there")


def _edge_arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="what", metavar="add|remove", required=True)
    for name in ("add", "remove"):
        one = deeds.add_parser(name)
        _file(one)
        one.add_argument("start", metavar="FROM")
        one.add_argument("to", metavar="TO")
        if name == "add":
            one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as condition=pass")


def dot(args: Namespace) -> int:
    if args.deed == "generate":
        return _generate(args)
    path = catalogue.locate(project.find(), args.file, os.environ)
    if args.deed == "status":
        return _status(reading.read(path), args.json)
    if args.deed == "transition":
        return _transition(path, args)
    if args.deed == "restart":
        return _told(moves.restart(path, by="doflow dot restart"), args, f"{args.file}: every node is pending")
    deed = _node if args.deed == "node" else _edge
    pipeline = moves.change(path, lambda found: deed(found, args))
    done = {"add": "is there", "modify": "is changed", "remove": "is gone"}[args.what]
    name = args.node if args.deed == "node" else f"{args.start} -> {args.to}"
    return _told(pipeline, args, f"{args.file}: {name} {done}")


def _status(pipeline: Pipeline, as_json: bool) -> int:
    ready = [node.id for node in graph.ready(pipeline)]
    if as_json:
        nodes = [checkpoint.node_plain(node) for node in pipeline.nodes]
        counts = {node.status: sum(one.status == node.status for one in pipeline.nodes) for node in pipeline.nodes}
        edges = [checkpoint.edge_plain(edge) for edge in pipeline.edges]
        found = {"pipeline": pipeline.name, "file": pipeline.path, "nodes": nodes, "edges": edges}
        commands.say_json({**found, "ready": ready, "counts": counts, "skipped": list(graph.skipped(pipeline))})
        return 0
    rows = [(node.id, node.handler, node.status, _remark(node, ready, pipeline), node.label) for node in pipeline.nodes]
    commands.table([("NODE", "HANDLER", "STATUS", "", "LABEL"), *rows])
    commands.say(f"ready: {', '.join(ready) or 'nothing'}")
    return 0


def _remark(node: Node, ready: list[str], pipeline: Pipeline) -> str:
    count = graph.retries(node)
    back = f"sent back {count} of {graph.max_retries(pipeline, node)}" if count else ""
    return back or ("ready" if node.id in ready else "")


def _transition(path: Path, args: Namespace) -> int:
    by = "doflow dot transition"
    if args.status == PENDING:
        pipeline = moves.requeue(path, args.node, by=by, note=args.note)
    else:
        pipeline = moves.transition(path, args.node, args.status, expect=args.expect, by=by, note=args.note)
    return _told(pipeline, args, f"{args.file}: {args.node} is {editing.the(pipeline, args.node).status}")


def _node(pipeline: Pipeline, args: Namespace) -> Pipeline:
    if args.what == "remove":
        return editing.remove(pipeline, args.node)
    values = _pairs(args.set)
    if values.get("status", PENDING) != PENDING or (args.what == "modify" and "status" in values):
        hint = f"doflow dot transition {args.file} {args.node} {values['status']}"
        raise UsageError("a status is not set: it moves from one to the next, as the table allows it", hint)
    if args.what == "modify":
        editing.the(pipeline, args.node)
        return editing.set_(editing.unset(pipeline, args.node, args.unset), args.node, values)
    pipeline = editing.add(pipeline, args.node, _complete(pipeline, args.node, values))
    for start in args.after:
        pipeline = editing.add_edge(pipeline, start, args.node, {})
    for to in args.before:
        pipeline = editing.add_edge(pipeline, args.node, to, {})
    return pipeline


def _complete(pipeline: Pipeline, name: str, values: dict[str, str]) -> dict[str, str]:
    """A new node says its handler, its shape and its status; a worker's node inherits the graph's `prd_ref`."""
    handler = values.get("handler") or HANDLERS.get(values.get("shape", "box").lower(), CODERGEN)
    found = {"handler": handler, "shape": SHAPES.get(handler, "box"), "label": name, "status": PENDING, **values}
    if handler == CODERGEN and pipeline.get("prd_ref"):
        found.setdefault("prd_ref", pipeline.get("prd_ref"))
    return found


def _edge(pipeline: Pipeline, args: Namespace) -> Pipeline:
    if args.what == "remove":
        return editing.remove_edge(pipeline, args.start, args.to)
    return editing.add_edge(pipeline, args.start, args.to, _pairs(args.set))


def _pairs(words: list[str]) -> dict[str, str]:
    odd = next((word for word in words if "=" not in word or word.startswith("=")), None)
    if odd is not None:
        raise UsageError(
            f"--set {odd} is not KEY=VALUE", 'as in --set prd_ref=PRD-AUTH-001, or --set "label=Two words"'
        )
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _told(pipeline: Pipeline, args: Namespace, words: str) -> int:
    """What was done, and what `doflow validate` would say of it now."""
    remarks = checks.check(pipeline)
    if args.json:
        name = getattr(args, "node", "")
        node = pipeline.node(name) if name else None
        found: dict[str, Any] = {"ok": True, "file": pipeline.path, "errors": len(checks.errors(remarks))}
        found["ready"] = [one.id for one in graph.ready(pipeline)]
        commands.say_json({**found, **({"node": checkpoint.node_plain(node)} if node else {})})
        return 0
    commands.say(words)
    for remark in checks.errors(remarks):
        commands.warn(f"{pipeline.path}:{remark.line}: {remark.message}")
    return 0


def _generate(args: Namespace) -> int:
    from doflow.flow import diagram as drawing, tasklist
    from doflow.flow.dot import generate as writing

    wish = writing.Wish(args.prd_ref, args.worker_type, args.check)
    if args.flow:
        opened = project.open_(project.find(), os.environ)
        if args.flow not in opened.about:
            raise UsageError(f"there is no flow {args.flow}", f"flows: {', '.join(opened.about)}")
        flow = opened.flow(args.flow)
        text = writing.of_flow(flow, drawing.graph(flow, opened.plan(args.flow)), wish)
    else:
        tasks = tasklist.parse(Path(args.tasks).read_text(encoding="utf-8"))
        if tasks.problems:
            first = tasks.problems[0]
            raise UsageError(f"{args.tasks}:{first.line}: {first.message}", "mend the task list first: docs/tasks.md")
        text = writing.of_tasks(tasks, args.name or Path(args.tasks).resolve().parent.name, wish)
    if args.name and args.flow:
        text = text.replace(f"digraph {editing.written(args.flow)} {{", f"digraph {editing.written(args.name)} {{", 1)
    return _out(text, args)


def _out(text: str, args: Namespace) -> int:
    if args.out:
        if os.path.lexists(args.out):
            raise UsageError(f"{args.out} is there already", "choose another name, or move it away")
        files.write(args.out, text.encode("utf-8"))
    if args.json:
        pipeline = reading.parse(text, args.out or "pipeline.dot")
        commands.say_json({"ok": True, "file": args.out, "nodes": [node.id for node in pipeline.nodes], "text": text})
    elif args.out:
        commands.say(f"{args.out} is written; next: doflow validate {args.out}")
    else:
        sys.stdout.write(text)
    return 0
