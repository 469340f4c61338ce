"""Where a node leads: its options, in the order in which they are tried, and the way through the graph. Pure.

The scripts of `walk_steps` decide between the options, for `doit` and for a guardian. An option is taken if its condition
holds, its label was chosen, or it is the default; options with the same condition and weight are taken together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from doflow.flow.dot import conditions, order
from doflow.flow.dot.conditions import FAIL, PASS, Clause, Condition
from doflow.flow.dot.model import CODERGEN, CONDITION, EXIT, GATE, MAX_RETRIES, START, TOOL, Edge, Node, Pipeline

#: attributes that only a walk through the graph can follow
_WALKED = ("goal_gate", "retry_target", "max_visits")
_TRUE = ("true", "yes", "1")


@dataclass(frozen=True, slots=True)
class Option:
    """Where a node may lead. No condition and no label: the default. `back`: it leads back to an earlier node."""

    targets: tuple[str, ...]
    condition: Condition | None = None
    label: str = ""
    back: bool = False

    @property
    def default(self) -> bool:
        return self.condition is None and not self.label


def is_walked(pipeline: Pipeline) -> bool:
    """Does it need a walk through the graph? Otherwise the order of its nodes is that of its edges, and only the fail edge
    of a diamond leads back."""
    kinds = {node.id: node.handler for node in pipeline.nodes}
    for node in pipeline.nodes:
        out = pipeline.out_of(node.id)
        if any(node.get(name) not in ("", "false") for name in _WALKED):
            return True
        if node.handler == CONDITION and sorted(edge.condition for edge in out) != ["fail", "pass"]:
            return True
        if node.handler != CONDITION and any(edge.condition for edge in out):
            return True
        if asks_for_choice(pipeline, node) or chooses_by_label(pipeline, node):
            return True
    if sum(node.handler == EXIT for node in pipeline.nodes) > 1:
        return True
    fails = {(e.start, e.to) for e in pipeline.edges if e.condition == "fail" and kinds[e.start] == CONDITION}
    reach = order.reachable(pipeline, fails)
    return any(name in reach[name] for name in kinds)


def needs_person(gate: Node) -> bool:
    """Does a person decide at this gate?"""
    return not (gate.command or gate.get("agent") or gate.get("prompt"))


def works(node: Node) -> bool:
    """Is something done for it? A diamond without a command only decides."""
    return node.handler in (CODERGEN, TOOL, GATE) or (node.handler == CONDITION and bool(node.command))


def asks_for_choice(pipeline: Pipeline, node: Node) -> bool:
    """A gate where a person chooses one of several ways by their labels: `[A] Approve`, or approve and reject."""
    plain = [edge for edge in pipeline.out_of(node.id) if not edge.get("condition")]
    labels = {edge.get("label").strip() for edge in plain}
    if node.handler != GATE or not needs_person(node) or len({edge.to for edge in plain}) < 2 or len(labels) < 2:
        return False
    known = (conditions.canonical_outcome(conditions.canonical_label(label)) for label in labels)
    return any(conditions.accelerator(label) for label in labels) or any(word in (PASS, FAIL) for word in known)


def chooses_by_label(pipeline: Pipeline, node: Node) -> bool:
    """An agent or a command that chooses one of several ways by their labels, because one of them leads back."""
    plain = [edge for edge in pipeline.out_of(node.id) if not edge.get("condition")]
    labels = {edge.get("label").strip() for edge in plain}
    if node.handler not in (CODERGEN, TOOL, GATE) or len({edge.to for edge in plain}) < 2 or len(labels) < 2:
        return False
    named = [edge.to for edge in plain if edge.get("label").strip()]
    reach = order.reachable(pipeline)
    return not asks_for_choice(pipeline, node) and any(node.id in reach[name] | {name} for name in named)


def is_goal(node: Node) -> bool:
    return node.get("goal_gate").lower() in _TRUE


class Graph:
    """A pipeline as a walk: the rank of its nodes, the edges that lead back, and the options of each node."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.nodes = {node.id: node for node in pipeline.nodes}

    @cached_property
    def rank(self) -> dict[str, int]:
        """The order of the nodes: a node comes after all that lead to it, except by an edge back. Branches stay together.

        A loop is entered at the node with the fewest edges from nodes outside of it that have no rank yet."""
        before = {name: {edge.start for edge in self.pipeline.into(name)} - {name} for name in self.nodes}
        reached = [node.id for node in self.pipeline.nodes if node.handler == START]
        found: dict[str, int] = {}
        while len(found) < len(self.nodes):
            if not reached:
                reached = [next(name for name in self.nodes if name not in found)]
            free = [name for name in reached if before[name] <= found.keys()]
            name = free[-1] if free else min(reached, key=lambda one: self._waits(before[one] - found.keys(), one))
            reached.remove(name)
            found[name] = len(found)
            for edge in reversed(self.pipeline.out_of(name)):
                if edge.to not in found:
                    reached = [*(one for one in reached if one != edge.to), edge.to]
        return found

    def _waits(self, missing: set[str], name: str) -> tuple[int, int]:
        """How much speaks against entering a loop here: nodes before it that it doesn't lead to itself, and all others."""
        return len(missing - self._reach[name]), len(missing)

    @cached_property
    def _reach(self) -> dict[str, frozenset[str]]:
        return order.reachable(self.pipeline)

    @cached_property
    def back_edges(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.pipeline.edges if self.leads_back(edge.start, edge.to))

    def leads_back(self, start: str, to: str) -> bool:
        return self.rank[to] <= self.rank[start]

    def options(self, name: str) -> tuple[Option, ...]:
        """Where a node may lead, in the order in which the options are tried; the first that fits is taken."""
        if name not in self._options:
            self._options[name] = self._find_options(self.nodes[name])
        return self._options[name]

    @cached_property
    def _options(self) -> dict[str, tuple[Option, ...]]:
        return {}

    def _find_options(self, node: Node) -> tuple[Option, ...]:
        groups: dict[tuple[str, str, int], list[str]] = {}
        parsed: dict[str, Condition] = {}
        chosen = asks_for_choice(self.pipeline, node)
        for edge in self.pipeline.out_of(node.id):
            condition, label = self._meaning(node, edge, chosen)
            if condition is not None:
                parsed[condition.text] = condition
            key = (condition.text if condition else "", label, -_weight(edge))
            targets = groups.setdefault(key, [])
            targets += [edge.to] if edge.to not in targets else []
        found = [
            Option(tuple(targets), parsed.get(text), label, any(self.leads_back(node.id, to) for to in targets))
            for (text, label, _), targets in sorted(groups.items(), key=lambda item: item[0][2])
        ]
        return self._with_retry(node, _in_order(found))

    def _meaning(self, node: Node, edge: Edge, chosen: bool) -> tuple[Condition | None, str]:
        """The condition of an edge, or the label by which it is chosen."""
        text, label = edge.get("condition").strip(), edge.get("label").strip()
        if text:
            return conditions.parse_condition(text), ""
        if edge.condition and not chosen:
            return conditions.parse_condition(edge.condition), ""
        if node.handler == CONDITION and label and len(self.pipeline.out_of(node.id)) > 1:
            known = conditions.canonical_outcome(conditions.canonical_label(label))
            return (conditions.parse_condition(known), "") if known in (PASS, FAIL) else (None, label)
        if label and chooses_by_label(self.pipeline, node):
            return self._by_label(node, edge, label), ""
        return None, label if chosen else ""

    def _by_label(self, node: Node, edge: Edge, label: str) -> Condition:
        """The label was given, or none, and the outcome is that of the label: leading back is a failure."""
        bare = conditions.canonical_label(label)
        outcome = conditions.canonical_outcome(bare)
        if outcome not in (PASS, FAIL):
            outcome = FAIL if self.leads_back(node.id, edge.to) else PASS
        given = Clause(conditions.LABEL, "=", bare)
        return Condition(
            label, ((given,), (Clause(conditions.LABEL, "=", ""), Clause(conditions.OUTCOME, "=", outcome)))
        )

    def _with_retry(self, node: Node, found: tuple[Option, ...]) -> tuple[Option, ...]:
        """With the node's `retry_target`, for a failure that no edge is for."""
        target = next((node.get(name) for name in _RETRY_NAMES if node.get(name) in self.nodes), "")
        conditional = any(option.condition for option in found)
        if not target or node.handler == EXIT or (conditional and any(option.default for option in found)):
            return found
        option = Option((target,), conditions.parse_condition(FAIL), "", self.leads_back(node.id, target))
        return (*(one for one in found if not one.default), option, *(one for one in found if one.default))

    def decides(self, name: str) -> bool:
        """Does the way depend on how the node ended, or lead back?"""
        options = self.options(name)
        return len(options) > 1 or any(option.back or not option.default for option in options)

    def retry_target(self, goal: Node) -> str:
        """Where to go if this goal gate is not met at the exit; '' = nowhere."""
        said = [goal.get(name) for name in _RETRY_NAMES] + [self.pipeline.get(name) for name in _RETRY_NAMES]
        return next((name for name in said if name in self.nodes), "")

    def goals(self) -> tuple[Node, ...]:
        return tuple(node for node in self.pipeline.nodes if is_goal(node) and works(node))

    def limit(self, name: str, targets: Sequence[str] = ()) -> int:
        """How often the way back may be taken from this node."""
        visits = [self.nodes[one].get("max_visits") for one in (name, *targets)]
        said = [int(word) - 1 for word in visits if word.isdecimal() and int(word)]
        if said:
            return max(0, min(said))
        own = self.nodes[name].get("max_retries") if self.nodes[name].handler == CONDITION else ""
        retries = [own, *(self.pipeline.get(one) for one in _GRAPH_LIMITS)]
        if not own.isdecimal() and (most := self.pipeline.get("max_node_visits")).isdecimal() and int(most):
            return max(0, int(most) - 1)
        return next((int(word) for word in retries if word.isdecimal() and word != "0"), MAX_RETRIES)


_RETRY_NAMES = ("retry_target", "fallback_retry_target")
_GRAPH_LIMITS = ("max_retries", "default_max_retries", "default_max_retry")


def bounded_by_file(graph: Graph, edge: Edge) -> bool:
    """Does the file itself bound this way back?"""
    graphwide = any(graph.pipeline.get(name) for name in (*_GRAPH_LIMITS, "max_node_visits"))
    start, to = graph.nodes[edge.start], graph.nodes[edge.to]
    own = start.get("max_visits") or to.get("max_visits") or (start.handler == CONDITION and start.get("max_retries"))
    return bool(graphwide or own)


def option_names(option: Option) -> tuple[str, ...]:
    names = (conditions.canonical_label(option.label), conditions.accelerator(option.label), *option.targets)
    return tuple(dict.fromkeys(name.lower() for name in names if name))


def outcomes(options: Sequence[Option]) -> tuple[str, ...]:
    """The outcomes that conditions ask for, pass and fail first."""
    named = (
        clause.value
        for option in options
        if option.condition is not None
        for clauses in option.condition.any_of
        for clause in clauses
        if clause.key == conditions.OUTCOME and clause.value
    )
    return tuple(dict.fromkeys((PASS, FAIL, *named)))


def _in_order(found: Sequence[Option]) -> tuple[Option, ...]:
    """Conditions, then labels, then one default: of several the one with the greatest weight."""
    named = [option for option in found if option.condition is not None]
    labelled = [option for option in found if option.condition is None and option.label]
    return (*named, *labelled, *[option for option in found if option.default][:1])


def _weight(edge: Edge) -> int:
    try:
        return int(float(edge.get("weight") or 0))
    except ValueError:
        return 0
