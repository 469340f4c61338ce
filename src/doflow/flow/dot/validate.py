"""Validate a pipeline: errors, which prevent a run, and warnings, each with its line. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from doflow.flow.dot import order
from doflow.flow.dot.model import (
    CODERGEN,
    CONDITION,
    CONDITIONS,
    EXIT,
    GATE,
    HANDLERS,
    SHAPES,
    START,
    STATUSES,
    TOOL,
    Node,
    Pipeline,
    label_text,
)

#: a note only concerns runs under a guardian; `strict` doesn't change it
ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a pipeline: `rule` is its short name, `node` the node ('' = the graph)."""

    level: str
    rule: str
    line: int
    node: str
    message: str
    hint: str = ""


Rule = Callable[[Pipeline], Iterable[Diagnostic]]


def check_pipeline(pipeline: Pipeline, strict: bool = False) -> tuple[Diagnostic, ...]:
    """All remarks in the order of the lines; with `strict` every warning is an error."""
    return apply_strict((remark for rule in _RULES for remark in rule(pipeline)), strict)


def apply_strict(remarks: Iterable[Diagnostic], strict: bool) -> tuple[Diagnostic, ...]:
    """In the order of the lines; with `strict` every warning is an error."""
    found = [replace(one, level=ERROR) if strict and one.level == WARNING else one for one in remarks]
    return tuple(sorted(found, key=lambda remark: (remark.line, remark.level, remark.rule)))


def errors(remarks: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(remark for remark in remarks if remark.level == ERROR)


def _wrong(rule: str, node: Node, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(ERROR, rule, node.line, node.id, message, hint)


def _doubtful(rule: str, node: Node, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(WARNING, rule, node.line, node.id, message, hint)


def _ends(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """One start that nothing leads to, one exit that leads nowhere."""
    if not pipeline.directed:
        hint = "write `digraph` instead of `graph`"
        yield Diagnostic(ERROR, "digraph", pipeline.line, "", "a pipeline must be a digraph", hint)
    for handler, word in ((START, "start"), (EXIT, "exit")):
        found = [node for node in pipeline.nodes if node.handler == handler]
        shape = SHAPES[handler]
        if not found:
            hint = f'add: {word} [shape={shape} handler="{handler}"]'
            yield Diagnostic(ERROR, f"one-{word}", pipeline.line, "", f"no {word} node (shape={shape})", hint)
        for node in found[1:]:
            yield _wrong(f"one-{word}", node, f"{node.id} is a second {word}; the first is {found[0].id}", "keep one")
        for node in found:
            edges = pipeline.into(node.id) if handler == START else pipeline.out_of(node.id)
            if edges:
                way = "leads to the start" if handler == START else "leaves the exit"
                yield replace(_wrong(f"{word}-edges", node, f"an edge {way} {node.id}"), line=edges[0].line)


def _reached(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Every node is reachable from the start and leads to the exit."""
    reach = order.reachable(pipeline)
    starts = [node.id for node in pipeline.nodes if node.handler == START]
    exits = {node.id for node in pipeline.nodes if node.handler == EXIT}
    after = {name for start in starts for name in reach[start]}
    for node in pipeline.nodes:
        if not pipeline.into(node.id) and not pipeline.out_of(node.id):
            hint = f"connect it: doflow dot edge add {pipeline.path} FROM {node.id}"
            yield _wrong("orphan", node, f"{node.id} has no edges", hint)
        elif starts and node.id not in after and node.id not in starts:
            message = f"{node.id} is not reachable from {starts[0]}"
            yield _wrong("unreachable", node, message, "add an edge that leads to it")
        elif exits and node.id not in exits and not exits & reach[node.id]:
            yield _doubtful("dead-end", node, f"{node.id} never leads to the exit", "add an edge from it")


def _handlers(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Known handlers with their shape and required attributes."""
    needs = {CODERGEN: ("bead_id", "worker_type"), TOOL: ("command",)}
    for node in pipeline.nodes:
        shape = node.shape or "box"
        if node.handler not in SHAPES:
            known = ", ".join(f"{name} ({form})" for name, form in SHAPES.items())
            what = f"handler {node.handler!r}" if node.handler else f"shape {shape!r}"
            yield _wrong("handler", node, f"{node.id} has an unknown {what}", f"handlers: {known}")
        elif node.shape and HANDLERS.get(shape.lower()) != node.handler:
            message = f"{node.id} has handler {node.handler} and shape {shape}, which do not match"
            yield _wrong("shape", node, message, f"write shape={SHAPES[node.handler]}")
        for name in needs.get(node.handler, ()):
            if not node.get(name):
                hint = f"doflow dot node modify {pipeline.path} {node.id} --set {name}=…"
                yield _wrong("required", node, f"{node.id} ({node.handler}) has no {name}", hint)


def _diamonds(pipeline: Pipeline) -> Iterator[Diagnostic]:
    for node in pipeline.nodes:
        ways = sorted(edge.condition or "nothing" for edge in pipeline.out_of(node.id))
        if node.handler == CONDITION and ways != ["fail", "pass"]:
            said = f"has {len(ways)} ({', '.join(ways)})" if ways else "has none"
            message = f"{node.id} must have exactly two edges, pass and fail; it {said}"
            yield _wrong(
                "diamond", node, message, 'write [condition="pass"] at one edge and [condition="fail"] at the other'
            )


def _edges(pipeline: Pipeline) -> Iterator[Diagnostic]:
    seen: set[tuple[str, str, str]] = set()
    for edge in pipeline.edges:
        if edge.condition not in ("", *CONDITIONS):
            message = f"{edge.start} -> {edge.to} has an unknown condition {edge.condition!r}"
            yield Diagnostic(ERROR, "condition", edge.line, edge.start, message, f"conditions: {', '.join(CONDITIONS)}")
        same = (edge.start, edge.to, edge.condition)
        if same in seen:
            yield Diagnostic(WARNING, "twice", edge.line, edge.start, f"{edge.start} -> {edge.to} is a duplicate edge")
        seen.add(same)


def _cycles(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """No cycles, except by the fail edge of a diamond."""
    kinds = {node.id: node.handler for node in pipeline.nodes}
    fails = {(e.start, e.to) for e in pipeline.edges if e.condition == "fail" and kinds[e.start] == CONDITION}
    reach = order.reachable(pipeline, fails)
    round_ = [node for node in pipeline.nodes if node.id in reach[node.id]]
    if round_:
        names = ", ".join(node.id for node in round_)
        hint = 'only the edge of a diamond with condition="fail" may lead back'
        yield _wrong("circle", round_[0], f"dependency cycle: {names}", hint)


def _values(pipeline: Pipeline) -> Iterator[Diagnostic]:
    for node in pipeline.nodes:
        if node.status not in STATUSES:
            hint = f"statuses: {', '.join(STATUSES)}"
            yield _wrong("status", node, f"{node.id} has an unknown status {node.status!r}", hint)
        for name in ("max_retries", "retry_count"):
            if node.has(name) and not node.get(name).isdecimal():
                yield _wrong("number", node, f"{name} of {node.id} is {node.get(name)!r}, not a whole number")
        if node.has("promise_ac") and not (node.get("promise_id") or pipeline.get("promise_id")):
            # a warning only: nodes are often written before the graph's promise_id
            message = f"{node.id} has promise_ac, but no promise_id is set"
            yield _doubtful("promise", node, message, 'add promise_id="…" to the graph')


def _codergen(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Attributes that a worker should have, and a gate after it."""
    reach = order.reachable(pipeline)
    judges = {node.id for node in pipeline.nodes if node.handler == GATE}
    for node in pipeline.nodes:
        if node.handler != CODERGEN:
            continue
        for name in ("prd_ref", "acceptance"):
            if not node.get(name) and not (name == "prd_ref" and pipeline.get(name)):
                hint = f"doflow dot node modify {pipeline.path} {node.id} --set {name}=…"
                yield _doubtful(name, node, f"{node.id} has no {name}", hint)
        if not judges & reach[node.id]:
            hint = "add a node with shape=hexagon after it"
            yield _doubtful("gate", node, f"no gate comes after {node.id}: its work is not validated", hint)


_RULES: tuple[Rule, ...] = (_ends, _reached, _handlers, _diamonds, _edges, _cycles, _values, _codergen)


def missing_references(pipeline: Pipeline, root: str) -> Iterator[Diagnostic]:
    """Warnings for missing files and folders that worker nodes refer to."""
    for node in pipeline.nodes:
        if node.handler != CODERGEN:
            continue
        design = attribute_value(pipeline, node, "solution_design")
        folder = "" if node.get("worktree") else attribute_value(pipeline, node, "target_dir")
        for name, what, path, exists in (
            ("solution_design", "the solution design", design, os.path.isfile),
            ("target_dir", "the folder", folder, os.path.isdir),
        ):
            if path and not exists(os.path.join(root, os.path.expanduser(path))):
                command = f"doflow dot node modify {pipeline.path} {node.id} --set {name}=…"
                hint = f"create it, or fix its path (relative to {root}): {command}"
                yield _doubtful(name, node, f"{node.id} refers to {what} {path}, which does not exist", hint)


#: a step's key holds its prompt: other words would run the steps of existing pipelines again
_LINES = (
    ("prd_ref", "The requirements are in", ""),
    ("prd_section", "The section that concerns you:", ""),
    ("solution_design", "The solution design, which you read first:", "`"),
    ("target_dir", "Work in the folder", "`"),
    ("bead_id", "The issue that this belongs to:", ""),
    ("worker_type", "You work as:", ""),
)


def attribute_value(pipeline: Pipeline, node: Node, name: str) -> str:
    """An attribute of a node, with the graph's value as default for `prd_ref` and paths."""
    return node.get(name) or (pipeline.get(name) if name in ("prd_ref", "solution_design", "target_dir") else "")


def prompt_text(pipeline: Pipeline, node: Node) -> str:
    """The prompt of a worker: the task, its documents, and the acceptance criteria."""
    lines = [f"# {node.label}", ""]
    if node.get("prompt"):
        lines += [label_text(node.get("prompt")), ""]
    for name, words, quote in _LINES:
        said = attribute_value(pipeline, node, name)
        lines += [f"- {words} {quote}{said}{quote}"] if said else []
    acceptance = label_text(node.get("acceptance"))
    if acceptance:
        lines += ["", "## It is accepted when", "", acceptance]
    return "\n".join(lines).rstrip() + "\n"


def review_text(pipeline: Pipeline, node: Node, judged: tuple[Node, ...]) -> str:
    """The prompt of a reviewer: the reviewed assignments and the acceptance criteria."""
    lines = [f"# {node.label}", ""]
    lines += [label_text(node.get("prompt")), ""] if node.get("prompt") else []
    lines += ["Look at the work and decide whether it is accepted. Change nothing.", ""]
    for one in judged:
        lines += [f"## The assignment of {one.id}", "", prompt_text(pipeline, one)]
    if node.get("acceptance"):
        lines += ["## It is accepted when", "", label_text(node.get("acceptance"))]
    return "\n".join(lines).rstrip() + "\n"
