"""Which steps a run has at all: `only` leaves one out by a parameter of the run, or by a variable of the environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from doflow.flow.model import Flow, Route, Step
from doflow.runs import session_layout as sessionpaths
from doflow.runs.catalogue import Run
from doflow.util.records import replace


def reduced(flow: Flow, run: Run, environ: Mapping[str, str]) -> Flow:
    """The flow without the steps that this run does not have, and without those that only they lead to."""
    given = {param.name: param.default for param in flow.params} | dict(run.params)
    gone = {step.id for step in flow.steps if step.only and not _there(step, given, run, environ)}
    if not gone:
        return flow
    kept = tuple(_cut(step, gone) for step in flow.steps if step.id not in gone)
    pipeline = tuple(name for name in flow.pipeline if name not in gone)
    reached = _reached(kept, pipeline)
    return replace(flow, steps=tuple(step for step in kept if step.id in reached), pipeline=pipeline)


def flagged(name: str, run: Run, environ: Mapping[str, str]) -> bool:
    """Is this variable exactly `true`? A bug-fix session is one, whoever goes on with it."""
    return environ.get(name) == "true" or (name == sessionpaths.FLAG and bool(sessionpaths.parent(run.dir)))


def _there(step: Step, given: Mapping[str, str], run: Run, environ: Mapping[str, str]) -> bool:
    only = dict(step.only)
    if "param" in only and not given.get(only["param"]):
        return False
    return not ("unless" in only and flagged(only["unless"], run, environ))


def _cut(step: Step, gone: set[str]) -> Step:
    routes = tuple(_without(rule, gone) for rule in step.routes)
    after = None if step.after is None else tuple(name for name in step.after if name not in gone)
    return replace(step, routes=routes, after=None if step.after and not after else after)


def _without(rule: Route, gone: set[str]) -> Route:
    return replace(rule, then=tuple(name for name in rule.then if name not in gone))


def _reached(steps: tuple[Step, ...], pipeline: tuple[str, ...]) -> set[str]:
    ways = {step.id: {name for rule in step.routes for name in rule.then} for step in steps}
    found: set[str] = set()
    waiting = [*pipeline]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += ways.get(name, ())
    return found
