"""Validate a pipeline: errors, which prevent a run, and warnings, each with its line. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from doflow.flow.dot import conditions, dialect, order, routing
from doflow.flow.dot.model import (
    CODERGEN,
    CONDITION,
    EXIT,
    GATE,
    HANDLERS,
    MAX_RETRIES,
    OTHER_HANDLERS,
    SHAPES,
    START,
    STATUSES,
    TOOL,
    Edge,
    Node,
    Pipeline,
    attribute_value,
)
from doflow.flow.model import Profile

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
        for node in found[1:] if handler == START else ():
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
    """Known handlers or shapes, and a command for each tool."""
    unknown: list[Node] = []
    unfit: list[Node] = []
    for node in pipeline.nodes:
        shape = node.shape or "box"
        word = node.get("handler")
        if node.handler not in SHAPES:
            known = ", ".join(f"{name} ({form})" for name, form in SHAPES.items())
            what = f"handler {word!r} and shape {shape!r}" if word else f"shape {shape!r}"
            yield _wrong("handler", node, f"{node.id} has an unknown {what}", f"handlers: {known}")
        elif word and OTHER_HANDLERS.get(word.lower(), word.lower()) not in SHAPES:
            unknown.append(node)
        elif node.shape and not node.role and HANDLERS.get(shape.lower(), node.handler) != node.handler:
            unfit.append(node)
        if node.handler == TOOL and not node.command:
            hint = f"doflow dot node modify {pipeline.path} {node.id} --set command=…"
            yield _wrong("required", node, f"{node.id} (tool) has no command", hint)
    if unknown:
        words = ", ".join(dict.fromkeys(node.get("handler") for node in unknown))
        message = f"unknown handlers, whose nodes do what their shape says: {words}"
        yield _doubtful("handler", unknown[0], message, f"handlers: {', '.join(SHAPES)}")
    if unfit:
        message = f"the handler decides, not the shape, at: {_names(unfit)}"
        yield _doubtful("shape", unfit[0], message, f"write shape={SHAPES[unfit[0].handler]} at {unfit[0].id}")


def _edges(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Conditions that can be evaluated, edges once, a way out of each diamond, retry targets that exist."""
    seen: set[tuple[str, str, str, str]] = set()
    for edge in pipeline.edges:
        try:
            conditions.parse_condition(edge.get("condition").strip() or edge.condition or "pass")
        except conditions.InvalidCondition as bad:
            message = f"{edge.start} -> {edge.to} has a condition that cannot be evaluated: {bad}"
            hint = "write pass, fail, outcome=success, outcome!=fail, preferred_label=…, context.key=…, joined by &&"
            yield Diagnostic(ERROR, "condition", edge.line, edge.start, message, hint)
        same = (edge.start, edge.to, edge.condition, edge.get("label"))
        if same in seen:
            yield Diagnostic(WARNING, "twice", edge.line, edge.start, f"{edge.start} -> {edge.to} is a duplicate edge")
        seen.add(same)
    for node in pipeline.nodes:
        if node.handler == CONDITION and not pipeline.out_of(node.id):
            hint = 'add an edge with [condition="pass"] and one with [condition="fail"]'
            yield _wrong("diamond", node, f"{node.id} decides, but has no edges to choose from", hint)
        for name in ("retry_target", "fallback_retry_target"):
            if node.get(name) and pipeline.node(node.get(name)) is None:
                message = f"{name} of {node.id} is {node.get(name)}, which is no node"
                yield _wrong("retry-target", node, message, "name a node of this pipeline")


def _cycles(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Every loop has a condition that ends it."""
    graph = routing.Graph(pipeline)
    reach = order.reachable(pipeline)
    exits = {node.id for node in pipeline.nodes if node.handler == EXIT}
    free: list[Edge] = []
    for edge in graph.back_edges:
        start = graph.nodes[edge.start]
        loop = [node.id for node in pipeline.nodes if node.id in reach[edge.start] and edge.start in reach[node.id]]
        if not loop:
            continue  # not reached from the start, which is an error of its own
        out = pipeline.out_of(edge.start)
        chosen = edge.condition or _chooses(pipeline, start)
        default = any(one.get("condition") or one.condition for one in out)
        if exits and not exits & reach[edge.start]:
            message = f"dependency cycle: {', '.join(loop)} never ends: no edge leads out of it"
            yield Diagnostic(
                ERROR, "circle", edge.line, edge.start, message, "add an edge with a condition that leaves it"
            )
        elif not chosen and not default and any(not graph.leads_back(one.start, one.to) for one in out):
            message = f"dependency cycle: {', '.join(loop)}: {edge.start} -> {edge.to} leads back without a condition"
            yield Diagnostic(ERROR, "circle", edge.line, edge.start, message, 'write [condition="fail"] at that edge')
        elif not any(_is_conditional(pipeline, name) for name in loop):
            message = f"dependency cycle: {', '.join(loop)}: no edge in it has a condition"
            yield Diagnostic(
                ERROR, "circle", edge.line, edge.start, message, 'write [condition="fail"] at the edge back'
            )
        elif not routing.bounded_by_file(graph, edge) and routing.is_walked(pipeline):
            free.append(edge)
    if free:
        names = ", ".join(f"{edge.start} -> {edge.to}" for edge in free[:5]) + (", …" if len(free) > 5 else "")
        message = f"loops without max_visits or max_retries are taken {MAX_RETRIES} times at most: {names}"
        hint = f"set max_visits at a node, or default_max_retries at the graph, if {MAX_RETRIES} is not right"
        yield Diagnostic(WARNING, "loop", free[0].line, free[0].start, message, hint)


def _is_conditional(pipeline: Pipeline, name: str) -> bool:
    node = pipeline.node(name)
    out = pipeline.out_of(name)
    decides = node is not None and _chooses(pipeline, node)
    return (decides and len({edge.to for edge in out}) > 1) or any(edge.condition for edge in out)


def _chooses(pipeline: Pipeline, node: Node) -> bool:
    choice = routing.asks_for_choice(pipeline, node) or routing.chooses_by_label(pipeline, node)
    return node.handler == CONDITION or choice


def _attributes(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Attributes that are not understood, named once."""
    found = dialect.unknown_attributes(pipeline)
    if found:
        message = f"attributes that doflow does not use: {', '.join(found)}"
        line = min(found.values())
        yield Diagnostic(WARNING, "attribute", line, "", message, "doflow's own are in docs/pipelines.md")


def _values(pipeline: Pipeline) -> Iterator[Diagnostic]:
    for node in pipeline.nodes:
        if node.status not in STATUSES:
            hint = f"statuses: {', '.join(STATUSES)}"
            yield _wrong("status", node, f"{node.id} has an unknown status {node.status!r}", hint)
        for name in ("max_retries", "max_visits", "retry_count"):
            if node.has(name) and not node.get(name).isdecimal():
                yield _wrong("number", node, f"{name} of {node.id} is {node.get(name)!r}, not a whole number")
        if node.has("promise_ac") and not (node.get("promise_id") or pipeline.get("promise_id")):
            # a warning only: nodes are often written before the graph's promise_id
            message = f"{node.id} has promise_ac, but no promise_id is set"
            yield _doubtful("promise", node, message, 'add promise_id="…" to the graph')


def _codergen(pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Attributes that a worker should have, and a gate after it; each named once."""
    reach = order.reachable(pipeline)
    judges = {node.id for node in pipeline.nodes if node.handler == GATE}
    workers = [node for node in pipeline.nodes if node.handler == CODERGEN]
    for names in (_TRACED, ("acceptance",)):
        missing = {name: [node for node in workers if not _given(pipeline, node, name)] for name in names}
        absent = [name for name, nodes in missing.items() if nodes]
        if absent:
            nodes = [node for node in workers if any(node in missing[name] for name in absent)]
            hint = f"doflow dot node modify {pipeline.path} {nodes[0].id} --set {absent[0]}=…"
            yield _doubtful(absent[0], nodes[0], f"no {', '.join(absent)} at {_names(nodes)}", hint)
    unjudged = [node for node in workers if not judges & reach[node.id]]
    if unjudged and not any(node.handler in (TOOL, CONDITION) for node in pipeline.nodes):
        message = f"no gate comes after {_names(unjudged)}: the work is not validated"
        yield _doubtful("gate", unjudged[0], message, "add a node with shape=hexagon after it")


#: attributes that trace a worker's node to its requirements
_TRACED = ("prd_ref", "bead_id", "worker_type")


def _given(pipeline: Pipeline, node: Node, name: str) -> bool:
    return bool(node.get(name) or (name == "prd_ref" and pipeline.get(name)))


def _names(nodes: Sequence[Node]) -> str:
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    return ", ".join(node.id for node in nodes[:5]) + more


_RULES: tuple[Rule, ...] = (_ends, _reached, _handlers, _edges, _cycles, _values, _codergen, _attributes)


def unmapped_models(pipeline: Pipeline, profiles: Sequence[Profile]) -> Iterator[Diagnostic]:
    """Models and providers that no profile of the settings is for, named once."""
    found: dict[str, Node] = {}
    for node in pipeline.nodes:
        missing = dialect.agent_and_model(node, profiles)[2] if node.handler == CODERGEN else ""
        if missing:
            found.setdefault(missing, node)
    if found:
        first = next(iter(found.values()))
        message = f"no profile is for {', '.join(found)}: the default agent does it, with its own model"
        yield _doubtful("model", first, message, "add a profile with this `model` under `agents:` in doflow.yaml")


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
