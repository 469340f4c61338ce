"""`doflow dot`: show, edit and advance a DOT pipeline; comments and layout are kept."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from doflow.cli import output
from doflow.config import project
from doflow.flow import diagram, tasklist
from doflow.flow.dot import editor, generate, order, parser, transitions, validate
from doflow.flow.dot.model import CODERGEN, CONDITION, HANDLERS, PENDING, SHAPES, Node, Pipeline
from doflow.util import atomic_files
from doflow.util.errors import UsageError

ABOUT = "DOT pipelines: their statuses, their nodes and edges, and new ones from a flow or a task list"
EXAMPLES = """\
  doflow dot status auth.dot                     status of each node, and which are ready
  doflow dot node add auth.dot impl --set handler=codergen --set prd_ref=PRD-AUTH-001 --after start --before gate
  doflow dot node modify auth.dot impl --set acceptance="all tests pass"
  doflow dot edge add auth.dot gate good
  doflow dot transition auth.dot impl active
  doflow dot generate --tasks specs/001-login/tasks.md --prd-ref PRD-AUTH-001 --check "pytest -q" > auth.dot
  doflow dot generate --flow feature             a flow as a pipeline
"""


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="status|node|edge|transition|restart|generate", required=True)
    _file(verbs.add_parser("status", help="status of each node, and which are ready"))
    _node_arguments(verbs.add_parser("node", help="add, modify or remove a node"))
    _edge_arguments(verbs.add_parser("edge", help="add or remove an edge"))
    moving = verbs.add_parser("transition", help="move a node to another status")
    _file(moving)
    moving.add_argument("node", help="its id")
    statuses = "active, impl_complete, validated, failed; pending = take the diamond's retry edge"
    moving.add_argument("status", help=statuses)
    expect = "refuse if its current status is a different one"
    moving.add_argument("--expect", default="", metavar="STATUS", help=expect)
    moving.add_argument("--note", default="", help="reason, for the log")
    _file(verbs.add_parser("restart", help="make every node pending again"))
    making = verbs.add_parser("generate", help="generate a pipeline, to standard output or --out")
    source = making.add_mutually_exclusive_group(required=True)
    source.add_argument("--flow", default="", help="from this flow")
    source.add_argument("--tasks", default="", metavar="FILE", help="from this task list: one worker per phase")
    making.add_argument("--name", default="", help="the graph's name (default: the flow's, the file's)")
    making.add_argument("--prd-ref", default="", help="graph attribute prd_ref, inherited by worker nodes")
    making.add_argument("--worker-type", default="implementer", help="worker_type of worker nodes")
    making.add_argument("--check", default="", metavar="COMMAND", help="command of each gate; a failure leads back")
    making.add_argument("--out", default="", metavar="FILE", help="write to this new file")
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
            _repeated(one, "--set", "KEY=VALUE", "an attribute; may be repeated")
        if name == "modify":
            _repeated(one, "--unset", "KEY", "remove an attribute")
        if name == "add":
            _repeated(one, "--after", "ID", "add an edge from this node")
            _repeated(one, "--before", "ID", "add an edge to this node")


def _edge_arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="what", metavar="add|remove", required=True)
    for name in ("add", "remove"):
        one = deeds.add_parser(name)
        _file(one)
        one.add_argument("start", metavar="FROM")
        one.add_argument("to", metavar="TO")
        if name == "add":
            _repeated(one, "--set", "KEY=VALUE", "an attribute, for example condition=pass")


def _repeated(parser: ArgumentParser, option: str, metavar: str, about: str) -> None:
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=about)


def dot(args: Namespace) -> int:
    if args.deed == "generate":
        return _generate(args)
    path = project.locate(project.find(), args.file, os.environ)
    if args.deed == "status":
        return _status(parser.read_pipeline(path), args.json)
    if args.deed == "transition":
        return _transition(path, args)
    if args.deed == "restart":
        return _report(transitions.restart(path, by="doflow dot restart"), args, f"{args.file}: every node is pending")
    deed = _node if args.deed == "node" else _edge
    pipeline = transitions.edit_pipeline(path, lambda found: deed(found, args))
    done = {"add": "added", "modify": "changed", "remove": "removed"}[args.what]
    name = args.node if args.deed == "node" else f"{args.start} -> {args.to}"
    return _report(pipeline, args, f"{args.file}: {name} {done}")


def _status(pipeline: Pipeline, as_json: bool) -> int:
    ready = [node.id for node in order.ready_nodes(pipeline)]
    if as_json:
        nodes = [node.to_dict() for node in pipeline.nodes]
        counts = {node.status: sum(one.status == node.status for one in pipeline.nodes) for node in pipeline.nodes}
        edges = [edge.to_dict() for edge in pipeline.edges]
        found = {"pipeline": pipeline.name, "file": pipeline.path, "nodes": nodes, "edges": edges}
        output.say_json({**found, "ready": ready, "counts": counts, "skipped": list(order.skipped_nodes(pipeline))})
        return 0
    rows = [(node.id, node.handler, node.status, _remark(node, ready, pipeline), node.label) for node in pipeline.nodes]
    output.table([("NODE", "HANDLER", "STATUS", "", "LABEL"), *rows])
    output.say(f"ready: {', '.join(ready) or 'nothing'}")
    return 0


def _remark(node: Node, ready: list[str], pipeline: Pipeline) -> str:
    count = order.retry_count(node)
    back = f"sent back {count} of {order.max_retries(pipeline, node)}" if count else ""
    return back or ("ready" if node.id in ready else "")


def _transition(path: Path, args: Namespace) -> int:
    by = "doflow dot transition"
    if args.status == PENDING:
        found = editor.get_node(transitions.read_settled(path), args.node)
        again = transitions.requeue if found.handler == CONDITION else transitions.reset
        pipeline = again(path, args.node, by=by, note=args.note)
    else:
        pipeline = transitions.transition(path, args.node, args.status, expect=args.expect, by=by, note=args.note)
    return _report(pipeline, args, f"{args.file}: {args.node} is {editor.get_node(pipeline, args.node).status}")


def _node(pipeline: Pipeline, args: Namespace) -> Pipeline:
    if args.what == "remove":
        return editor.remove_node(pipeline, args.node)
    values = _pairs(args.set)
    if values.get("status", PENDING) != PENDING or (args.what == "modify" and "status" in values):
        hint = f"doflow dot transition {args.file} {args.node} {values['status']}"
        raise UsageError("a status can't be set directly; use a transition", hint)
    if args.what == "modify":
        editor.get_node(pipeline, args.node)
        return editor.set_attributes(editor.unset_attributes(pipeline, args.node, args.unset), args.node, values)
    pipeline = editor.add_node(pipeline, args.node, _complete(pipeline, args.node, values))
    for start in args.after:
        pipeline = editor.add_edge(pipeline, start, args.node, {})
    for to in args.before:
        pipeline = editor.add_edge(pipeline, args.node, to, {})
    return pipeline


def _complete(pipeline: Pipeline, name: str, values: dict[str, str]) -> dict[str, str]:
    """Defaults of a new node: handler, shape, status; a worker node inherits the graph's `prd_ref`."""
    handler = values.get("handler") or HANDLERS.get(values.get("shape", "box").lower(), CODERGEN)
    found = {"handler": handler, "shape": SHAPES.get(handler, "box"), "label": name, "status": PENDING, **values}
    if handler == CODERGEN and pipeline.get("prd_ref"):
        found.setdefault("prd_ref", pipeline.get("prd_ref"))
    return found


def _edge(pipeline: Pipeline, args: Namespace) -> Pipeline:
    if args.what == "remove":
        return editor.remove_edge(pipeline, args.start, args.to)
    return editor.add_edge(pipeline, args.start, args.to, _pairs(args.set))


def _pairs(words: list[str]) -> dict[str, str]:
    odd = next((word for word in words if "=" not in word or word.startswith("=")), None)
    if odd is not None:
        hint = 'as in --set prd_ref=PRD-AUTH-001, or --set "label=Two words"'
        raise UsageError(f"--set {odd} is not KEY=VALUE", hint)
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _report(pipeline: Pipeline, args: Namespace, words: str) -> int:
    """Report the change, and errors that `doflow validate` would find now."""
    remarks = validate.check_pipeline(pipeline)
    if args.json:
        name = getattr(args, "node", "")
        node = pipeline.node(name) if name else None
        found: dict[str, Any] = {"ok": True, "file": pipeline.path, "errors": len(validate.errors(remarks))}
        found["ready"] = [one.id for one in order.ready_nodes(pipeline)]
        output.say_json({**found, **({"node": node.to_dict()} if node else {})})
        return 0
    output.say(words)
    for remark in validate.errors(remarks):
        output.warn(f"{pipeline.path}:{remark.line}: {remark.message}")
    return 0


def _generate(args: Namespace) -> int:
    options = generate.GenerateOptions(args.prd_ref, args.worker_type, args.check)
    if args.flow:
        opened = project.open_project(project.find(), os.environ)
        if args.flow not in opened.about:
            raise output.unknown_flow(args.flow, opened.about, opened.broken)
        flow = opened.flow(args.flow)
        text = generate.generate_from_flow(flow, diagram.build_graph(flow, opened.plan(args.flow)), options)
    else:
        tasks = tasklist.parse_task_list(Path(args.tasks).read_text(encoding="utf-8"))
        if tasks.problems:
            first = tasks.problems[0]
            raise UsageError(f"{args.tasks}:{first.line}: {first.message}", "fix the task list first: docs/tasks.md")
        text = generate.generate_from_tasks(tasks, args.name or Path(args.tasks).resolve().parent.name, options)
    if args.name and args.flow:
        text = text.replace(f"digraph {editor.write_id(args.flow)} {{", f"digraph {editor.write_id(args.name)} {{", 1)
    if args.out:
        if os.path.lexists(args.out):
            raise UsageError(f"{args.out} already exists", "choose another name, or move it")
        atomic_files.write_file(args.out, text.encode("utf-8"))
    if args.json:
        pipeline = parser.parse_pipeline(text, args.out or "pipeline.dot")
        output.say_json({"ok": True, "file": args.out, "nodes": [node.id for node in pipeline.nodes], "text": text})
    elif args.out:
        output.say(f"wrote {args.out}; next: doflow validate {args.out}")
    else:
        sys.stdout.write(text)
    return 0
