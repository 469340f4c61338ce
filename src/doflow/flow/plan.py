"""Flow → Plan: the nodes, their dependencies, and which steps are active.

A node becomes one doit task. A step has one node, plus `.clarify`, `.gate` and `.route` nodes if it has questions, a gate or
routes; later steps depend on the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from doflow.flow.model import Flow, Route, Settings, Step
from doflow.util.process.runner import Timeout

_ROLES = {"gate": "gate", "implement": "phases"}


class Node(NamedTuple):
    """A future doit task. `deps`: nodes it depends on; `router`: the node whose result decides its dependencies."""

    name: str
    role: str  # step, phases, each, clarify, gate, route
    step: str
    deps: tuple[str, ...]
    router: str
    doc: str


class Plan(NamedTuple):
    """All nodes in order; `ends`: the last node of each step; `routes`: for each routing step, marker → steps."""

    flow: str
    about: str
    nodes: tuple[Node, ...]
    ends: Mapping[str, str]
    pipeline: tuple[str, ...]
    routes: Mapping[str, Mapping[str, tuple[str, ...]]]
    after: Mapping[str, tuple[str, ...]]


def build_plan(flow: Flow, settings: Settings) -> Plan:
    by_id = {step.id: step for step in flow.steps}
    pipeline = flow.pipeline or tuple(by_id)
    parts = {step.id: own for step in flow.steps if (own := _parts(step, settings))}
    ends = {name: f"{flow.name}:{parts[name][-1] if name in parts else name}" for name in by_id}
    router = next((name for name in pipeline if by_id[name].routes), "")
    settled = frozenset(pipeline[: pipeline.index(router) + 1] if router else pipeline)
    running = frozenset(pipeline)
    nodes: list[Node] = []
    before: tuple[str, ...] = ()
    for name in pipeline:
        step, here = by_id[name], name in settled
        wait = () if not here else before if step.after is None else tuple(ends[other] for other in step.after)
        nodes += _nodes(flow, step, settings, parts.get(name, ()), wait, "" if here else ends[router])
        before = (ends[name],)
    for step in flow.steps:
        if step.id not in running:
            nodes += _nodes(flow, step, settings, parts.get(step.id, ()), (), ends[router] if router else "")
    return Plan(
        flow.name,
        flow.about,
        tuple(nodes),
        ends,
        pipeline,
        {step.id: {rule.when: rule.then for rule in step.routes} for step in flow.steps if step.routes},
        {step.id: step.after for step in flow.steps if step.after is not None},
    )


def active_steps(plan: Plan, markers: Mapping[str, str]) -> tuple[str, ...]:
    """The steps that run, in order, as far as the known markers decide it."""
    order = list(plan.pipeline)
    place = 0
    while place < len(order):
        then = plan.routes.get(order[place], {}).get(markers.get(order[place], ""))
        if then is not None:
            order[place + 1 :] = [name for name in then if name not in order[: place + 1]]
        place += 1
    return tuple(order)


def predecessors(plan: Plan, order: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each active step its predecessors."""
    known = set(order)
    found: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for name in order:
        said = plan.after.get(name)
        wanted = before if said is None else tuple(other for other in said if other in known)
        found[name] = wanted if wanted or said == () else before
        before = (name,)
    return found


def upstream(found: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> set[str]:
    """These steps and everything before them; takes the result of `predecessors`."""
    seen, waiting = set(names), list(names)
    while waiting:
        more = [name for name in found.get(waiting.pop(), ()) if name not in seen]
        seen.update(more)
        waiting += more
    return seen


class StepOrder:
    """The active steps and their order, as these markers of routing steps decide it."""

    def __init__(self, flow: Flow, plan: Plan, markers: Mapping[str, str]) -> None:
        self._coding = frozenset(step.id for step in flow.steps if step.kind == "implement")
        self._active = active_steps(plan, markers)
        self._before = predecessors(plan, self._active)

    def active(self) -> tuple[str, ...]:
        """The steps that run, in order."""
        return self._active

    def before(self, name: str) -> tuple[str, ...]:
        """The steps that this one directly comes after."""
        return self._before.get(name.partition(":")[0], ())

    def upstream(self, name: str) -> set[str]:
        """The steps that this one comes after, directly or through others."""
        return upstream(self._before, self.before(name))

    def builders(self, step: Step) -> list[str]:
        """The implement steps before a command, with others between: a command like `test` is about their code."""
        if not self._coding or step.kind != "shell":
            return []
        direct = self.before(step.id)
        return sorted(self._coding & upstream(self._before, direct) - {*direct})

    def reviews_code(self, step: Step) -> bool:
        """A review that comes after an implement step reads the diff of the run's phase commits."""
        if step.kind != "review":
            return False
        before = self._active[: self._active.index(step.id)] if step.id in self._active else ()
        return not self._coding.isdisjoint(before)


def find_route(step: Step, marker: str) -> Route | None:
    return next((route for route in step.routes if route.when == marker), None)


def gate_text(step: Step, settings: Settings) -> str:
    """The question of the gate after this step; '' = no gate."""
    if step.gate:
        return step.gate
    return f"Approve {step.id}?" if f"after-{step.id}" in settings.gates else ""


def step_timeout(step: Step, settings: Settings) -> Timeout:
    """The time limits of a step: from the flow, else the settings; limits that the settings set for the step by name win."""
    base = step.timeout or settings.timeout
    for prefix, idle, most in settings.step_timeouts:
        if step.id.startswith(prefix):
            base = Timeout(base.idle if idle is None else idle, base.max if most is None else most)
    return base


def routed_profile(name: str, settings: Settings) -> str:
    """The profile that `route_agents` sets for a step, by its id or else by a prefix of it; '' = none."""
    exact = (profile for said, profile in settings.route_agents if said == name)
    return next(exact, "") or next((profile for said, profile in settings.route_agents if name.startswith(said)), "")


def _parts(step: Step, settings: Settings) -> Sequence[str]:
    """The nodes of a step after the step itself."""
    if not (step.clarify or step.gate or step.routes or settings.gates):
        return ()
    parts = []
    if step.clarify:
        parts.append(f"{step.id}.clarify")
    if step.kind != "gate" and gate_text(step, settings):
        parts.append(f"{step.id}.gate")
    if step.routes:
        parts.append(f"{step.id}.route")
    return parts


def _nodes(
    flow: Flow, step: Step, settings: Settings, parts: Sequence[str], wait: tuple[str, ...], router: str
) -> list[Node]:
    role = "each" if step.foreach else _ROLES.get(step.kind, "step")
    nodes = [Node(f"{flow.name}:{step.id}", role, step.id, wait, router, _doc(step))]
    for part in parts:
        kind = part.rsplit(".", 1)[1]
        words = {"clarify": f"questions left by {step.id}", "gate": gate_text(step, settings)}
        doc = words.get(kind, f"where {step.id} leads")
        nodes.append(Node(f"{flow.name}:{part}", kind, step.id, (nodes[-1].name,), "", doc))
    return nodes


def _doc(step: Step) -> str:
    if step.about:
        return step.about
    if step.kind == "shell":
        return " ".join(step.run) or step.shell
    if step.kind == "gate":
        return step.gate
    if step.kind == "implement":
        return f"one task per phase of {step.phases}"
    return f"makes {', '.join(step.makes)}" if step.makes else step.kind
