"""The steps of a pipeline whose nodes decide where it goes on, in any loops: each visit of a node is a step. Pure.

Tokens walk through the graph, one step after the other; the one with the lowest rank moves next, so that a node where branches
meet runs after all of them. An edge that leads back starts the next lap: `build`, then `build-2`, …. At a node that decides the
walk splits: each of its options continues with steps of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from doflow.flow.dot import conditions, routing, unroll
from doflow.flow.dot.model import EXIT, PENDING, START, VALIDATED, Node, Pipeline
from doflow.flow.dot.routing import Graph, Option
from doflow.util.errors import FlowError, Problem

Visit = tuple[str, int]  # node, lap
MOST = unroll.MOST


@dataclass(slots=True)
class WalkStep:
    """A visit of a node (`decides` off), or the decision after it. `sources`: the visits whose results it follows;
    `ways`: for each option the steps after it, None = the walk ends here because it went back too often."""

    id: str
    node: Node
    lap: int
    decides: bool = False
    sources: dict[Visit, None] = field(default_factory=dict)
    ways: list[tuple[Option, tuple[str, ...] | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Walk:
    """`first`: the steps up to the first decision; `steps`: every possible step, by id; `laps`: the most there can be."""

    graph: Graph
    first: tuple[str, ...]
    steps: Mapping[str, WalkStep]
    laps: int

    def visits(self, name: str) -> tuple[str, ...]:
        """The steps that work on a node, the first lap first."""
        found = [step for step in self.steps.values() if step.node.id == name and not step.decides]
        return tuple(step.id for step in sorted(found, key=lambda step: step.lap))


def walk(pipeline: Pipeline) -> Walk:
    """The steps of a pipeline that has no errors; with fewer laps where there would be too many steps."""
    walker = _Walker(pipeline)
    while (found := walker.walk()) is None and walker.laps > 2:
        walker = _Walker(pipeline, max(2, walker.laps // 2))
    if found is None:
        message = f"its branches and loops make more than {MOST} steps"
        hint = "set a smaller max_visits at the graph, or split the pipeline"
        raise FlowError((Problem(pipeline.path, pipeline.nodes[0].line, 1, message, hint),))
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    node: str
    lap: int
    sources: tuple[Visit, ...] = ()


_Tokens = dict[str, _Token]


class _Walker:
    def __init__(self, pipeline: Pipeline, laps: int = 0) -> None:
        self._pipeline, self._graph = pipeline, Graph(pipeline)
        working = [node.id for node in pipeline.nodes if routing.works(node) or self._decides(node)]
        self._slugs = unroll.slugs(working)
        self.laps = laps or self._most_laps(len(working))
        self._steps: dict[str, WalkStep] = {}
        self._known: dict[tuple[str, int, tuple[Visit, ...]], str] = {}
        self._todo: list[tuple[WalkStep, _Tokens, _Token]] = []

    def walk(self) -> Walk | None:
        """None = too many steps."""
        starts = [node.id for node in self._pipeline.nodes if node.handler == START]
        first = self._advance({name: _Token(name, 1) for name in starts})
        while self._todo:
            step, left, token = self._todo.pop(0)
            for option in self.options(step.node):
                lap = token.lap + option.back
                if lap > self.laps:
                    step.ways.append((option, None))
                    continue
                tokens = dict(left)
                for name in option.targets:
                    _add(tokens, _Token(name, lap, token.sources))
                step.ways.append((option, self._advance(tokens)))
            if len(self._steps) > MOST:
                return None
        return Walk(self._graph, first, self._steps, self.laps)

    def options(self, node: Node) -> tuple[Option, ...]:
        if node.handler != EXIT:
            return self._graph.options(node.id)
        targets = dict.fromkeys(target for goal in self._graph.goals() if (target := self._graph.retry_target(goal)))
        return tuple(Option((target,), back=True) for target in targets)

    def _decides(self, node: Node) -> bool:
        if node.handler == EXIT:
            return bool(self._graph.goals())
        return self._graph.decides(node.id)

    def _most_laps(self, count: int) -> int:
        """Enough for every loop, as long as the steps stay within bounds."""
        starts = {edge.start: edge for edge in self._graph.back_edges}
        limits = [self._graph.limit(edge.start, (edge.to,)) for edge in starts.values()]
        limits += [self._graph.limit(goal.id) for goal in self._graph.goals()]
        return max(2, min(1 + sum(limits), MOST // max(1, 2 * count))) if limits else 1

    def _advance(self, tokens: _Tokens) -> tuple[str, ...]:
        """The steps until the next decision."""
        found: list[str] = []
        while tokens:
            token = tokens.pop(min(tokens, key=self._graph.rank.__getitem__))
            node = self._graph.nodes[token.node]
            if routing.works(node):
                found.append(self._visit(node, token))
                token = _Token(node.id, token.lap, ((node.id, token.lap),))
            if self._decides(node):
                found.append(self._decision(node, token, tokens))
                break
            for option in self._graph.options(node.id):
                for name in option.targets:
                    _add(tokens, _Token(name, token.lap, token.sources))
        return tuple(found)

    def _visit(self, node: Node, token: _Token) -> str:
        name = self._name(node, token.lap)
        step = self._steps.setdefault(name, WalkStep(name, node, token.lap))
        if step.node.id != node.id or step.decides:
            raise self._twice(node, name)
        step.sources.update(dict.fromkeys(token.sources))
        return name

    def _decision(self, node: Node, token: _Token, left: _Tokens) -> str:
        """The step that decides after a visit; other branches that wait make it another one."""
        key = (node.id, token.lap, tuple(sorted((one.node, one.lap) for one in left.values())))
        name = self._known.get(key, "")
        if not name:
            same = sum(known[:2] == key[:2] for known in self._known)
            base = self._name(node, token.lap) + ("-next" if routing.works(node) else "")
            name = self._known[key] = f"{base}-{chr(ord('a') + same)}" if same else base
            if name in self._steps:
                raise self._twice(node, name)
            self._steps[name] = WalkStep(name, node, token.lap, decides=True)
            self._todo.append((self._steps[name], dict(left), token))
        self._steps[name].sources.update(dict.fromkeys(token.sources))
        return name

    def _name(self, node: Node, lap: int) -> str:
        return self._slugs[node.id] if lap == 1 else f"{self._slugs[node.id]}-{lap}"

    def _twice(self, node: Node, name: str) -> FlowError:
        other = self._steps[name].node.id
        message = f"{node.id} and {other} would have the same step name {name}"
        return FlowError((Problem(self._pipeline.path, node.line, 1, message, "rename one of them"),))


def _add(tokens: _Tokens, token: _Token) -> None:
    """Where two branches meet they continue as one, in the later lap."""
    held = tokens.get(token.node)
    if held is not None:
        sources: Sequence[Visit] = (*held.sources, *(one for one in token.sources if one not in held.sources))
        token = _Token(token.node, max(held.lap, token.lap), tuple(sources))
    tokens[token.node] = token


class WantedResults:
    """Which results the decisions of a walk follow, and how they may end."""

    def __init__(self, walk: Walk) -> None:
        self._graph = walk.graph
        self._goals = {goal.id for goal in walk.graph.goals()}
        self._followed_by: dict[str, dict[str, None]] = {}
        for step in walk.steps.values():
            if step.decides and step.node.handler != EXIT and not is_plain(self._graph.options(step.node.id)):
                for name, _ in step.sources:
                    self._followed_by.setdefault(name, {})[step.node.id] = None

    def decides(self, node: Node) -> bool:
        """Does the way depend on the result of this node?"""
        return node.id in self._followed_by or node.id in self._goals

    def endings(self, node: Node) -> tuple[str, ...]:
        """The last lines that its report may have: the outcomes that the edges ask for."""
        return tuple(f"RESULT: {word}" for word in routing.outcomes(self._options(node)))

    def labels(self, node: Node) -> tuple[str, ...]:
        return tuple(option.label for option in self._options(node) if option.label)

    def other_lines(self, node: Node) -> str:
        """What else the edges ask for: a label, values."""
        found = [option.condition for option in self._options(node) if option.condition]
        keys = dict.fromkeys(key for condition in found for key in condition.named_keys())
        asked = (clause for condition in found for clauses in condition.any_of for clause in clauses)
        named_labels = (one.value for one in asked if one.key == conditions.LABEL and one.op == "=" and one.value)
        labels = dict.fromkeys((*self.labels(node), *named_labels))
        lines = [f"Where it is known, give `{key}` on a line of its own: `CONTEXT: {key}=VALUE`."
                 for key in keys if key not in (conditions.OUTCOME, conditions.LABEL, conditions.OUTPUT)]  # fmt: skip
        if labels or conditions.LABEL in keys:
            named = f", one of: {', '.join(labels)}" if labels else ""
            lines.append(f"Name the way to go on on a line of its own: `LABEL: …`{named}.")
        return "".join(f"{line}\n" for line in lines)

    def _options(self, node: Node) -> tuple[Option, ...]:
        """The options between which its result decides: its own, and those of the diamonds after it."""
        return tuple(option for name in self._followed_by.get(node.id, ()) for option in self._graph.options(name))


def is_plain(options: Sequence[Option]) -> bool:
    """Is there nothing to decide? The way only leads back."""
    return all(option.default for option in options)


def node_statuses(
    walk: Walk, active: Sequence[WalkStep], status: Callable[[WalkStep], str], ended: bool
) -> dict[str, tuple[str, int]]:
    """The status and retry count of each node: those of its last visit; a node without work was passed if one after it was."""
    found: dict[str, tuple[str, int]] = {}
    for step in active:
        if step.node.handler != EXIT and (not step.decides or not routing.works(step.node)):
            found[step.node.id] = status(step), step.lap - 1
    passed = {name for name, (known, _) in found.items() if known != PENDING}
    for node in walk.graph.pipeline.nodes:
        if node.id in found:
            continue
        ahead = any(edge.to in passed for edge in walk.graph.pipeline.out_of(node.id))
        over = node.handler == START or (ended if node.handler == EXIT else ahead and not routing.works(node))
        found[node.id] = VALIDATED if over else PENDING, 0
    return found
