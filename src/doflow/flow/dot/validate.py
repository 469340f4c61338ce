"""What is wrong with a pipeline, each with its line: errors, with which nothing runs, and warnings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from doflow.flow.dot import order as graph
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
)
from doflow.util.records import dataclass, replace

#: a note is for those who have a pipeline worked on under a guardian; `strict` leaves it one
ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say about a pipeline: `rule` is its short name, `node` whom it concerns ('' = the graph)."""

    level: str
    rule: str
    line: int
    node: str
    message: str
    hint: str = ""


Rule = Callable[[Pipeline], Iterable[Remark]]


def check(pipeline: Pipeline, strict: bool = False) -> tuple[Remark, ...]:
    """All remarks in the order of the lines; with `strict` every warning is an error."""
    return weighed((remark for rule in _RULES for remark in rule(pipeline)), strict)


def weighed(remarks: Iterable[Remark], strict: bool) -> tuple[Remark, ...]:
    """In the order of the lines; with `strict` every warning is an error."""
    found = [replace(one, level=ERROR) if strict and one.level == WARNING else one for one in remarks]
    return tuple(sorted(found, key=lambda remark: (remark.line, remark.level, remark.rule)))


def errors(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    return tuple(remark for remark in remarks if remark.level == ERROR)


def _wrong(rule: str, node: Node, message: str, hint: str = "") -> Remark:
    return Remark(ERROR, rule, node.line, node.id, message, hint)


def _doubtful(rule: str, node: Node, message: str, hint: str = "") -> Remark:
    return Remark(WARNING, rule, node.line, node.id, message, hint)


def _ends(pipeline: Pipeline) -> Iterator[Remark]:
    """One start that nothing leads to, one exit that leads nowhere."""
    if not pipeline.directed:
        yield Remark(
            ERROR, "digraph", pipeline.line, "", "a pipeline is a digraph", "write `digraph` instead of `graph`"
        )
    for handler, word in ((START, "start"), (EXIT, "exit")):
        found = [node for node in pipeline.nodes if node.handler == handler]
        shape = SHAPES[handler]
        if not found:
            hint = f'add: {word} [shape={shape} handler="{handler}"]'
            yield Remark(ERROR, f"one-{word}", pipeline.line, "", f"there is no {word} node (shape={shape})", hint)
        for node in found[1:]:
            yield _wrong(f"one-{word}", node, f"{node.id} is a second {word}; the first is {found[0].id}", "keep one")
        for node in found:
            edges = pipeline.into(node.id) if handler == START else pipeline.out_of(node.id)
            if edges:
                way = "leads to the start" if handler == START else "leaves the exit"
                yield replace(_wrong(f"{word}-edges", node, f"an edge {way} {node.id}"), line=edges[0].line)


def _reached(pipeline: Pipeline) -> Iterator[Remark]:
    """Everything comes after the start, and leads to the exit."""
    reach = graph.reachable(pipeline)
    starts = [node.id for node in pipeline.nodes if node.handler == START]
    exits = {node.id for node in pipeline.nodes if node.handler == EXIT}
    after = {name for start in starts for name in reach[start]}
    for node in pipeline.nodes:
        if not pipeline.into(node.id) and not pipeline.out_of(node.id):
            hint = f"join it: doflow dot edge add {pipeline.path} FROM {node.id}"
            yield _wrong("orphan", node, f"{node.id} is joined to nothing", hint)
        elif starts and node.id not in after and node.id not in starts:
            yield _wrong(
                "unreachable", node, f"{node.id} is not reached from {starts[0]}", "add an edge that leads to it"
            )
        elif exits and node.id not in exits and not exits & reach[node.id]:
            yield _doubtful("dead-end", node, f"{node.id} never leads to the exit", "add an edge that leads on")


def _handlers(pipeline: Pipeline) -> Iterator[Remark]:
    """Handlers that we know, in their shape, with what they need."""
    needs = {CODERGEN: ("bead_id", "worker_type"), TOOL: ("command",)}
    for node in pipeline.nodes:
        shape = node.shape or "box"
        if node.handler not in SHAPES:
            known = ", ".join(f"{name} ({form})" for name, form in SHAPES.items())
            what = f"handler {node.handler!r}" if node.handler else f"shape {shape!r}"
            yield _wrong("handler", node, f"{node.id} has the unknown {what}", f"handlers: {known}")
        elif node.shape and HANDLERS.get(shape.lower()) != node.handler:
            wanted = SHAPES[node.handler]
            message = f"{node.id} has handler {node.handler} and shape {shape}, which do not belong together"
            yield _wrong("shape", node, message, f"write shape={wanted}")
        for name in needs.get(node.handler, ()):
            if not node.get(name):
                hint = f"doflow dot node modify {pipeline.path} {node.id} --set {name}=…"
                yield _wrong("required", node, f"{node.id} ({node.handler}) has no {name}", hint)


def _diamonds(pipeline: Pipeline) -> Iterator[Remark]:
    for node in pipeline.nodes:
        ways = sorted(edge.condition or "nothing" for edge in pipeline.out_of(node.id))
        if node.handler == CONDITION and ways != ["fail", "pass"]:
            said = f"has {len(ways)} ({', '.join(ways)})" if ways else "has none"
            message = f"{node.id} must have exactly two edges, pass and fail; it {said}"
            yield _wrong(
                "diamond", node, message, 'write [condition="pass"] at one edge and [condition="fail"] at the other'
            )


def _edges(pipeline: Pipeline) -> Iterator[Remark]:
    seen: set[tuple[str, str, str]] = set()
    for edge in pipeline.edges:
        if edge.condition not in ("", *CONDITIONS):
            message = f"{edge.start} -> {edge.to} has the unknown condition {edge.condition!r}"
            yield Remark(ERROR, "condition", edge.line, edge.start, message, f"conditions: {', '.join(CONDITIONS)}")
        same = (edge.start, edge.to, edge.condition)
        if same in seen:
            yield Remark(WARNING, "twice", edge.line, edge.start, f"{edge.start} -> {edge.to} stands there twice")
        seen.add(same)


def _circles(pipeline: Pipeline) -> Iterator[Remark]:
    """No way leads in a circle, except back by the fail edge of a diamond."""
    kinds = {node.id: node.handler for node in pipeline.nodes}
    fails = {(e.start, e.to) for e in pipeline.edges if e.condition == "fail" and kinds[e.start] == CONDITION}
    reach = graph.reachable(pipeline, fails)
    round_ = [node for node in pipeline.nodes if node.id in reach[node.id]]
    if round_:
        names = ", ".join(node.id for node in round_)
        hint = 'only the edge of a diamond with condition="fail" may lead back'
        yield _wrong("circle", round_[0], f"these nodes wait for each other: {names}", hint)


def _values(pipeline: Pipeline) -> Iterator[Remark]:
    for node in pipeline.nodes:
        if node.status not in STATUSES:
            hint = f"statuses: {', '.join(STATUSES)}"
            yield _wrong("status", node, f"{node.id} has the unknown status {node.status!r}", hint)
        for name in ("max_retries", "retry_count"):
            if node.has(name) and not node.get(name).isdecimal():
                yield _wrong("number", node, f"{name} of {node.id} is {node.get(name)!r}, not a whole number")
        if node.has("promise_ac") and not (node.get("promise_id") or pipeline.get("promise_id")):
            yield _doubtful_promise(node)


def _doubtful_promise(node: Node) -> Remark:
    """Of a node on its own (as it is often written first) a word; the promise itself stands at the graph."""
    return _doubtful("promise", node, f"{node.id} has promise_ac, but no promise_id says which promise",
                     'add promise_id="…" to the graph')  # fmt: skip


def _codergen(pipeline: Pipeline) -> Iterator[Remark]:
    """What a worker should be told, and somebody who looks at its work afterwards."""
    reach = graph.reachable(pipeline)
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
            yield _doubtful(
                "gate", node, f"no gate comes after {node.id}: nobody but its worker says that it works", hint
            )


_RULES: tuple[Rule, ...] = (_ends, _reached, _handlers, _diamonds, _edges, _circles, _values, _codergen)
