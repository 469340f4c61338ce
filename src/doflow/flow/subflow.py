"""Sub-flows: the steps of the inner flow replace the step that runs it. Pure.

Their ids and artifacts are prefixed with the step's id (`design/plan`, `design/plan.md`), so that they cannot collide. An
inner `input.md` is the outer one, unless the step sets its own goal. A gate of the step itself comes after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from doflow.flow.model import Flow, Read, Route, Step
from doflow.flow.parsing.syntax import substitute


def inline_subflows(flow: Flow, flows: Mapping[str, Flow], gates: Sequence[str] = ()) -> Flow:
    """The flow without sub-flow steps. `gates`: those of the settings, `after-design`."""
    if not flow.has_subflows:
        return flow
    flow = replace(flow, steps=tuple(_gated(step, gates) for step in flow.steps))
    subs = {step.id: step for step in flow.steps if step.kind == "flow"}
    inner = {name: inline_subflows(flows[step.flow], flows) for name, step in subs.items()}
    places = {name: _place(step, inner[name]) for name, step in subs.items()}

    def spread(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for name in names for one in places.get(name, (name,)))

    steps: list[Step] = []
    for step in flow.steps:
        if step.id not in subs:
            steps.append(replace(step, routes=tuple(replace(rule, then=spread(rule.then)) for rule in step.routes)))
            continue
        rest = (*places[step.id][len(inner[step.id].pipeline) :], *spread(_rest(step.id, flow)))
        steps += [_moved(found, step, inner[step.id], rest, _before(step, flow)) for found in inner[step.id].steps]
        steps += [_gate(step, inner[step.id])] if step.gate else []
    ends = {name: (name,) if step.gate else _ends(step, inner[name]) for name, step in subs.items()}
    steps = [replace(step, after=_after(step.after, ends)) for step in steps]
    inputs = [*flow.inputs, *(pair for name, step in subs.items() for pair in _inputs(step, inner[name]))]
    return replace(flow, steps=tuple(steps), pipeline=spread(flow.pipeline), inputs=tuple(inputs))


def _gated(step: Step, gates: Sequence[str]) -> Step:
    """A sub-flow step with the gate that the settings add after it."""
    if step.kind != "flow" or step.gate or f"after-{step.id}" not in gates:
        return step
    return replace(step, gate=f"Approve {step.id}?")


def _place(step: Step, inner: Flow) -> tuple[str, ...]:
    """The ids of the steps that replace a sub-flow step."""
    return (*(f"{step.id}/{name}" for name in inner.pipeline), *((step.id,) if step.gate else ()))


def _rest(name: str, flow: Flow) -> tuple[str, ...]:
    """The steps after a step: in the pipeline, else in the route that names it."""
    ways = (flow.pipeline, *(rule.then for step in flow.steps for rule in step.routes))
    return next((way[way.index(name) + 1 :] for way in ways if name in way), ())


def _before(step: Step, flow: Flow) -> tuple[str, ...]:
    """The steps that the whole inner flow depends on."""
    if step.after is not None or step.id not in flow.pipeline:
        return step.after or ()
    place = flow.pipeline.index(step.id)
    return flow.pipeline[max(place - 1, 0) : place]


def _moved(found: Step, outer: Step, inner: Flow, rest: tuple[str, ...], before: tuple[str, ...]) -> Step:
    own = "goal" in dict(outer.params)

    def path(said: str) -> str:
        if said.startswith("/") or (said == "input.md" and not own):
            return said
        return f"{outer.id}/{said}"

    def read(given: Read) -> Read:
        return replace(given, path=path(given.path))

    given = _given(outer, inner)
    return replace(
        found,
        id=f"{outer.id}/{found.id}",
        makes=tuple(path(said) for said in found.makes),
        reads=tuple(read(one) for one in found.reads),
        needs=tuple(read(one) for one in found.needs),
        phases=path(found.phases) if found.phases else "",
        phases_or=tuple(path(said) for said in found.phases_or),
        foreach=path(found.foreach) if isinstance(found.foreach, str) else found.foreach,
        protect=(*found.protect, *inner.protect, *outer.protect),
        after=_waits(found, outer, inner, before),
        routes=tuple(_route(rule, outer.id, rest) for rule in found.routes),
        agent=found.agent or outer.agent,
        model=found.model or outer.model,
        fallback=found.fallback or outer.fallback,
        params=(*given.items(), *((name, substitute(value, given)) for name, value in found.params)),
    )


def _given(outer: Step, inner: Flow) -> dict[str, str]:
    return {param.name: param.default for param in inner.params if param.default} | dict(outer.params)


def _waits(found: Step, outer: Step, inner: Flow, before: tuple[str, ...]) -> tuple[str, ...] | None:
    """The inner flow starts when the sub-flow step would: also those of its steps that have no dependencies."""
    if found.after is None:
        return outer.after if found.id == inner.pipeline[0] else None
    return tuple(f"{outer.id}/{name}" for name in found.after) or before


def _route(rule: Route, outer: str, rest: tuple[str, ...]) -> Route:
    """The route of the inner flow, followed by the steps after it."""
    if rule.pause:
        return replace(rule, again=tuple(f"{outer}/{name}" for name in rule.again))
    return replace(rule, then=(*(f"{outer}/{name}" for name in rule.then), *rest))


def _gate(step: Step, inner: Flow) -> Step:
    """A gate for everything that the inner flow made."""
    made = (said if said.startswith("/") else f"{step.id}/{said}" for found in inner.steps for said in found.makes)
    reads = tuple(Read(path, optional=True) for path in made)
    return Step(step.id, "gate", gate=step.gate, reads=reads, after=_ends(step, inner), origin=step.origin)


def _ends(step: Step, inner: Flow) -> tuple[str, ...]:
    """The last steps of the inner flow; with routes, every step of it that may run."""
    routed = any(found.routes for found in inner.steps)
    return tuple(f"{step.id}/{found.id}" for found in inner.steps) if routed else (f"{step.id}/{inner.pipeline[-1]}",)


def _inputs(step: Step, inner: Flow) -> list[tuple[str, str]]:
    own = dict(step.params).get("goal")
    given = _given(step, inner)
    found = [(f"{step.id}/{path}", substitute(text, given)) for path, text in inner.inputs]
    return [(f"{step.id}/input.md", own), *found] if own else found


def _after(said: tuple[str, ...] | None, ends: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    return None if said is None else tuple(one for name in said for one in ends.get(name, (name,)))
