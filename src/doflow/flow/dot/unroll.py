"""A pipeline without cycles: every try of a loop is a step of its own (`build`, `build-2`, …). Pure.

A diamond decides what comes next; its fail edge leads to the next try, until `max_retries` is used up. A node
inside two loops is counted in both (`build-2-3`: the third try within the second of the outer loop).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from doflow.flow.dot import order
from doflow.flow.dot.model import CODERGEN, CONDITION, GATE, TOOL, Node, Pipeline
from doflow.util.errors import FlowError, Problem

WORK = (CODERGEN, TOOL, GATE, CONDITION)
MOST = 400
_OTHER = re.compile(r"[^a-z0-9_-]+")

Tries = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One try of a node: a step. `tries`: for each loop around it, which try of that loop it belongs to."""

    id: str
    node: Node
    tries: tuple[tuple[str, int], ...] = ()
    after: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    sent_by: str = ""
    last: bool = False

    @property
    def number(self) -> int:
        """Which try of its innermost loop it is."""
        return self.tries[-1][1] if self.tries else 1


class Unrolled(NamedTuple):
    """`first`: the steps if nothing fails, in order; `turns`: every possible step, by id."""

    first: tuple[str, ...]
    turns: Mapping[str, NodeRun]

    def tries_of(self, node: str) -> tuple[NodeRun, ...]:
        return tuple(turn for turn in self.turns.values() if turn.node.id == node)


def unroll(pipeline: Pipeline) -> Unrolled:
    """The steps of a pipeline that has no errors."""
    return _Unroller(pipeline).unrolled()


class _Unroller:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._nodes = {node.id: node for node in pipeline.nodes}
        found = order.compute_order(pipeline)
        self._retry = {(start, to) for start, to in found.back if start not in found.repairs}
        work = [name for name in order.topological_sequence(pipeline, self._retry) if self._nodes[name].handler in WORK]
        self._place = {name: number for number, name in enumerate(work)}
        self._main = tuple(name for name in work if name not in found.repairs)
        self._body = {
            name: tuple(one for one in order.retry_body(pipeline, name) if one in self._place)
            for name in work
            if self._nodes[name].handler == CONDITION
        }
        self._loops = {name: self._loop(name) for name, body in self._body.items() if body}
        self._slugs = slugs(work)
        self._turns: dict[str, NodeRun] = {}
        self._before: dict[str, tuple[str, ...]] = {}

    def unrolled(self) -> Unrolled:
        todo: list[tuple[tuple[str, ...], Tries, str]] = [(self._main, {}, "")]
        while todo:
            queue, tries, sent_by = todo.pop(0)
            for place, name in enumerate(queue):
                todo += self._visit(name, queue[place + 1 :], tries, sent_by if place == 0 else "")
            if len(self._turns) > MOST:
                hint = "set a smaller max_retries at the diamonds or at the graph"
                raise self._refused(self._pipeline.nodes[0], f"the loops make more than {MOST} steps", hint)
        first = tuple(self._id(name, {}) for name in self._main)
        turns = {name: self._joined(turn, first) for name, turn in self._turns.items()}
        return Unrolled(first, turns)

    def _visit(
        self, name: str, rest: tuple[str, ...], tries: Tries, sent_by: str
    ) -> list[tuple[tuple[str, ...], Tries, str]]:
        ident, node = self._id(name, tries), self._nodes[name]
        if ident in self._turns:
            if self._turns[ident].node.id != name:
                names = " and ".join(sorted((name, self._turns[ident].node.id)))
                message = f"tries of {names} would have the same step name {ident}"
                raise self._refused(node, message, "rename one of them")
            if name in self._body and self._before[ident] != rest:
                message = f"doit cannot order this: the steps after {name} depend on an earlier branch"
                raise self._refused(node, message, "join the branches before the next diamond")
            return []
        loops = tuple((loop, tries.get(loop, 1)) for loop in self._around(name))
        turn = NodeRun(ident, node, loops, sent_by=sent_by)
        self._before[ident] = rest
        if node.handler == CONDITION:
            return self._decide(turn, rest, tries)
        self._turns[ident] = turn
        return []

    def _decide(self, turn: NodeRun, rest: tuple[str, ...], tries: Tries) -> list[tuple[tuple[str, ...], Tries, str]]:
        """The steps after a diamond: on pass, and on fail the next try or the fail branch."""
        name = turn.node.id
        on = self._alive(rest, name, "pass")
        then = self._ids(on, tries)
        todo: list[tuple[tuple[str, ...], Tries, str]] = [(on, tries, "")]
        body = self._body[name]
        used = dict(turn.tries).get(name, 1)
        if not body:
            off = self._alive(rest, name, "fail")
            turn = replace(turn, then=then, otherwise=self._ids(off, tries))
            todo.append((off, tries, ""))
        elif used > order.max_retries(self._pipeline, turn.node):
            turn = replace(turn, then=then, last=True)
        else:
            again = dict(turn.tries) | {name: used + 1}
            turn = replace(turn, then=then, otherwise=self._ids((*body, *rest), again))
            todo.append(((*body, *rest), again, turn.id))
        self._turns[turn.id] = turn
        return todo

    def _joined(self, turn: NodeRun, first: Sequence[str]) -> NodeRun:
        """With the steps it waits for."""
        waits = [turn.sent_by] if turn.sent_by else []
        for name in self._sources(turn.node.id):
            waits += [other.id for other in self._turns.values() if other.node.id == name and self._fits(other, turn)]
        before = first[: first.index(turn.id)] if turn.id in first else None
        if before is not None and not any(self._turns[name].node.id in self._body for name in before):
            waits = [name for name in waits if name in first]
        return replace(turn, after=tuple(dict.fromkeys(waits)))

    def _fits(self, other: NodeRun, turn: NodeRun) -> bool:
        """Does `other` come before `turn`? In the loops around both they are in the same try; a loop around `other` alone
        has ended by then, if its diamond comes before `turn` at all."""
        tries = dict(turn.tries)
        return all(
            number == tries[loop] if loop in tries else number == 1 or self._place[loop] < self._place[turn.node.id]
            for loop, number in other.tries
        )

    def _sources(self, name: str) -> tuple[str, ...]:
        """The work that comes right before a node; start, exit and joins are skipped."""
        found: dict[str, None] = {}
        for edge in self._pipeline.into(name):
            if (edge.start, edge.to) in self._retry:
                continue
            if edge.start in self._place:
                found[edge.start] = None
            else:
                found.update(dict.fromkeys(self._sources(edge.start)))
        return tuple(found)

    def _alive(self, rest: tuple[str, ...], diamond: str, way: str) -> tuple[str, ...]:
        """What can still come after a diamond has decided."""
        gone = {name for name in self._main if name not in rest and self._place[name] > self._place[diamond]}
        edges = [edge for edge in self._pipeline.edges if (edge.start, edge.to) not in self._retry]
        for name in order.topological_sequence(self._pipeline, self._retry):
            into = [edge for edge in edges if edge.to == name]
            if into and all(e.start in gone or (e.start == diamond and e.condition not in ("", way)) for e in into):
                gone.add(name)
        return tuple(name for name in rest if name not in gone)

    def _loop(self, diamond: str) -> frozenset[str]:
        """All nodes that a loop can repeat, including inner loops."""
        inner = [name for name in self._body[diamond] if name != diamond and self._body.get(name)]
        return frozenset(self._body[diamond]).union(*(self._loop(name) for name in inner))

    def _around(self, name: str) -> tuple[str, ...]:
        """The loops around a node, the outermost first."""
        loops = (loop for loop, inside in self._loops.items() if name in inside)
        return tuple(sorted(loops, key=lambda loop: -self._place[loop]))

    def _id(self, name: str, tries: Tries) -> str:
        numbers = [tries.get(loop, 1) for loop in self._around(name)]
        if all(number == 1 for number in numbers):
            return self._slugs[name]
        return "-".join([self._slugs[name], *(str(number) for number in numbers)])

    def _ids(self, names: Sequence[str], tries: Tries) -> tuple[str, ...]:
        return tuple(self._id(name, tries) for name in names)

    def _refused(self, node: Node, message: str, hint: str) -> FlowError:
        return FlowError((Problem(self._pipeline.path, node.line, 1, message, hint),))


def slugs(names: Sequence[str]) -> dict[str, str]:
    """A valid task and file name for each node; of equal ones all but the first get a letter."""
    found: dict[str, str] = {}
    for name in names:
        slug = base = _OTHER.sub("-", name.lower()).strip("-_")[:48] or "node"
        for letter in string.ascii_lowercase[1:]:
            if slug not in found.values():
                break
            slug = f"{base}-{letter}"
        found[name] = slug
    return found
