"""A flow inside a flow: the steps of the inner one take the place of the step that names it. Pure.

Their ids and artifacts get the step's id in front (`design/plan`, `design/plan.md`), so that two of them never meet. An
inner `input.md` is the outer one, unless the step gives a goal of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from doflow.model import Flow, Read, Route, Step


def inline(flow: Flow, flows: Mapping[str, Flow]) -> Flow:
    if not any(step.kind == "flow" for step in flow.steps):
        return flow
    steps: list[Step] = []
    inputs = list(flow.inputs)
    pipeline = list(flow.pipeline)
    for step in flow.steps:
        if step.kind != "flow":
            steps.append(step)
            continue
        inner = inline(flows[step.flow], flows)
        rest = tuple(pipeline[pipeline.index(step.id) + 1 :]) if step.id in pipeline else ()
        steps += [_moved(found, step, inner, rest) for found in inner.steps]
        own = dict(step.params).get("goal")
        inputs += [(f"{step.id}/input.md", own)] if own else []
        inputs += [(f"{step.id}/{path}", text) for path, text in inner.inputs]
        if step.id in pipeline:
            place = pipeline.index(step.id)
            pipeline[place : place + 1] = [f"{step.id}/{name}" for name in inner.pipeline]
    ends = {step.id: f"{step.id}/{_last(flows[step.flow])}" for step in flow.steps if step.kind == "flow"}
    steps = [replace(step, after=_after(step.after, ends)) for step in steps]
    return replace(flow, steps=tuple(steps), pipeline=tuple(pipeline), inputs=tuple(inputs))


def _moved(found: Step, outer: Step, inner: Flow, rest: tuple[str, ...]) -> Step:
    own = "goal" in dict(outer.params)

    def path(said: str) -> str:
        if said.startswith("/") or (said == "input.md" and not own):
            return said
        return f"{outer.id}/{said}"

    def read(given: Read) -> Read:
        return replace(given, path=path(given.path))

    first = found.id == (inner.pipeline[0] if inner.pipeline else "")
    after = found.after if found.after is None else tuple(f"{outer.id}/{name}" for name in found.after)
    given = {param.name: param.default for param in inner.params if param.default} | dict(outer.params)
    return replace(
        found,
        id=f"{outer.id}/{found.id}",
        makes=tuple(path(said) for said in found.makes),
        reads=tuple(read(one) for one in found.reads),
        needs=tuple(read(one) for one in found.needs),
        phases=path(found.phases) if found.phases else "",
        phases_or=tuple(path(said) for said in found.phases_or),
        after=outer.after if first and after is None else after,
        routes=tuple(_route(rule, outer.id, rest) for rule in found.routes),
        agent=found.agent or outer.agent,
        model=found.model or outer.model,
        params=(*given.items(), *found.params),
    )


def _route(rule: Route, outer: str, rest: tuple[str, ...]) -> Route:
    """What the inner flow goes on with, and then what comes after it."""
    if rule.pause:
        return rule
    return replace(rule, then=(*(f"{outer}/{name}" for name in rule.then), *rest))


def _after(said: tuple[str, ...] | None, ends: Mapping[str, str]) -> tuple[str, ...] | None:
    return None if said is None else tuple(ends.get(name, name) for name in said)


def _last(flow: Flow) -> str:
    name = flow.pipeline[-1]
    step = flow.step(name)
    return f"{name}/{step.flow}" if step and step.kind == "flow" else name
