"""The order of a pipeline: dependencies, retry edges, and which nodes are ready. Pure.

A retry edge, the `fail` edge of a diamond that leads back to an earlier node, is not a dependency. A node that only such an
edge reaches (a repair node) runs only after the diamond has sent the work back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from doflow.flow.dot.model import (
    CONDITION,
    EXIT,
    FAILED,
    GATE,
    IMPL_COMPLETE,
    MAX_RETRIES,
    PENDING,
    START,
    TERMINAL,
    VALIDATED,
    Edge,
    Node,
    Pipeline,
)

_MET = {"": VALIDATED, "pass": VALIDATED, "fail": FAILED, "partial": IMPL_COMPLETE}


class Order(NamedTuple):
    """`back`: edges that aren't dependencies; `repairs`: nodes that only a retry reaches, with their diamonds."""

    back: frozenset[tuple[str, str]]
    repairs: Mapping[str, tuple[str, ...]]


def compute_order(pipeline: Pipeline) -> Order:
    """Find the edges that lead back, and the nodes that only they reach."""
    reach = reachable(pipeline)
    diamonds = {node.id for node in pipeline.nodes if node.handler == CONDITION}
    retry = {
        (edge.start, edge.to)
        for edge in pipeline.edges
        if edge.start in diamonds and edge.condition == "fail" and edge.start in reach[edge.to] | {edge.to}
    }
    forward = reachable(pipeline, retry)
    targets = {edge.to for edge in pipeline.edges if edge.start != edge.to}
    starts = [node.id for node in pipeline.nodes if node.handler == START]
    firsts = starts or [node.id for node in pipeline.nodes if node.id not in targets]
    main = {name for first in firsts for name in (first, *forward[first])}
    repairs: dict[str, tuple[str, ...]] = {}
    for start, to in sorted(retry):
        for name in (to, *forward[to]):
            if name not in main:
                repairs[name] = (*repairs.get(name, ()), start)
    home = {(edge.start, edge.to) for edge in pipeline.edges if edge.start in repairs and edge.to not in repairs}
    return Order(frozenset(retry | home), repairs)


def reachable(pipeline: Pipeline, without: Iterable[tuple[str, str]] = ()) -> dict[str, frozenset[str]]:
    """For each node all nodes after it; itself only if it is on a cycle."""
    left = set(without)
    after: dict[str, list[str]] = {node.id: [] for node in pipeline.nodes}
    for edge in pipeline.edges:
        if (edge.start, edge.to) not in left:
            after[edge.start].append(edge.to)
    found = {}
    for node in pipeline.nodes:
        seen: set[str] = set()
        todo = list(after[node.id])
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += after[name]
        found[node.id] = frozenset(seen)
    return found


def dependencies(pipeline: Pipeline, node: str) -> tuple[str, ...]:
    """The nodes it depends on; never those at the other end of a retry edge."""
    back = compute_order(pipeline).back
    return tuple(dict.fromkeys(edge.start for edge in pipeline.into(node) if (edge.start, edge.to) not in back))


def ready_nodes(pipeline: Pipeline) -> tuple[Node, ...]:
    """The nodes that are ready to run, in file order: pending, with all dependencies met.

    A start node is always ready; the exit only when every gate is validated. A branch that a diamond
    did not take is no longer a dependency. A failed node isn't ready: retrying it (failed → active) is a decision.
    """
    readiness = _Readiness(pipeline)
    return tuple(node for node in pipeline.nodes if node.status == PENDING and readiness.ready(node))


def skipped_nodes(pipeline: Pipeline) -> tuple[str, ...]:
    """The nodes that won't run, because a diamond took the other branch."""
    readiness = _Readiness(pipeline)
    return tuple(node.id for node in pipeline.nodes if node.status == PENDING and readiness.dead(node.id, ()))


def unvalidated_gates(pipeline: Pipeline) -> tuple[str, ...]:
    """The gates that the exit still waits for."""
    gone = skipped_nodes(pipeline)
    repairs = compute_order(pipeline).repairs
    waiting = (node.id for node in pipeline.nodes if node.handler == GATE and node.status != VALIDATED)
    return tuple(name for name in waiting if name not in gone and not _idle(name, repairs, pipeline))


def retry_body(pipeline: Pipeline, diamond: str) -> tuple[str, ...]:
    """The nodes to repeat when this diamond fails, in order, the diamond last; () = no retry edge."""
    found = compute_order(pipeline)
    fails = (edge.to for edge in pipeline.out_of(diamond) if edge.condition == "fail")
    target = next((to for to in fails if (diamond, to) in found.back), "")
    if not target:
        return ()
    retry = {(start, to) for start, to in found.back if start not in found.repairs}
    forward = reachable(pipeline, retry)
    inside = {name for name in (target, *forward[target]) if name == diamond or diamond in forward[name]}
    return tuple(name for name in topological_sequence(pipeline, retry) if name in inside)


def topological_sequence(pipeline: Pipeline, without: Iterable[tuple[str, str]] = ()) -> tuple[str, ...]:
    """All nodes in topological order, otherwise in file order. Nodes on a cycle come last."""
    left = set(without)
    waits = {node.id: set[str]() for node in pipeline.nodes}
    for edge in pipeline.edges:
        if (edge.start, edge.to) not in left and edge.start != edge.to:
            waits[edge.to].add(edge.start)
    done: dict[str, None] = {}
    names = [node.id for node in pipeline.nodes]
    while names:
        name = next((name for name in names if waits[name] <= done.keys()), names[0])
        names.remove(name)
        done[name] = None
    return tuple(done)


def retry_count(node: Node) -> int:
    """How often this diamond has sent the work back."""
    count = node.get("retry_count", "0")
    return int(count) if count.isdecimal() else 0


def max_retries(pipeline: Pipeline, node: Node) -> int:
    """How often it may: `max_retries` of the node, else of the graph, else 3."""
    said = node.get("max_retries") or pipeline.get("max_retries") or pipeline.get("default_max_retry")
    return int(said) if said.isdecimal() else MAX_RETRIES


class _Readiness:
    """Readiness of nodes, from the statuses of the nodes before them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, found = pipeline, compute_order(pipeline)
        self._back, self._repairs = found.back, found.repairs
        self._nodes = {node.id: node for node in pipeline.nodes}
        self._sent = {name for name in found.repairs if not _idle(name, found.repairs, pipeline)}

    def ready(self, node: Node) -> bool:
        if node.handler == START:
            return True
        if node.handler == EXIT and unvalidated_gates(self._pipeline):
            return False
        if _idle(node.id, self._repairs, self._pipeline):
            return False
        edges = self._edges(node.id)
        live = [edge for edge in edges if not self._edge_dead(edge, ())]
        return all(self._met(edge) for edge in live) and bool(live or not edges)

    def dead(self, name: str, way: tuple[str, ...]) -> bool:
        edges = self._edges(name)
        return bool(edges) and name not in way and all(self._edge_dead(edge, (*way, name)) for edge in edges)

    def _edges(self, name: str) -> list[Edge]:
        """Its dependencies now: also edges from a repair node, once the work was sent back."""
        into = self._pipeline.into(name)
        return [edge for edge in into if (edge.start, edge.to) not in self._back or edge.start in self._sent]

    def _met(self, edge: Edge) -> bool:
        """A diamond waits for any end of the node before it; other nodes need it validated."""
        status = self._nodes[edge.start].status
        if self._nodes[edge.to].handler == CONDITION and not edge.condition:
            return status in TERMINAL
        return status == _MET.get(edge.condition, VALIDATED)

    def _edge_dead(self, edge: Edge, way: tuple[str, ...]) -> bool:
        """Its diamond took the other branch, or its start node will never run."""
        start = self._nodes[edge.start]
        if start.handler == CONDITION and start.status in TERMINAL and edge.condition:
            back = any((one.start, one.to) in self._back for one in self._pipeline.out_of(start.id))
            if not self._met(edge) and not (back and start.status == FAILED):
                return True
        return start.status == PENDING and self.dead(edge.start, way)


def _idle(name: str, repairs: Mapping[str, tuple[str, ...]], pipeline: Pipeline) -> bool:
    """Is it a repair node, and no work was sent back yet?"""
    senders = [node for node in pipeline.nodes if node.id in repairs.get(name, ())]
    return bool(senders) and not any(retry_count(node) for node in senders)
