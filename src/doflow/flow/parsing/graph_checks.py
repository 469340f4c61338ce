"""Checks of the graph of steps and flows: unknown names, dependency cycles, two steps that make the same file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from doflow.flow import findings
from doflow.flow.model import Flow, Step
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import RawFlow, RawStep
from doflow.util import globs
from doflow.util.errors import FlowError, Problem

#: how many orders of steps are checked in one flow
MAX_ORDERS = 2000


def problems(draft: RawFlow, steps: Sequence[Step], pipeline: Sequence[str]) -> list[Problem]:
    """All problems; cycles are only searched for if every name is known."""
    known = frozenset(step.id for step in steps)
    pairs = tuple(zip(draft.entries, steps, strict=True))
    found = [*_in_pipeline(draft, known), *_two_makers(pairs)]
    for entry, step in pairs:
        if step.after:
            found.extend(_in_after(entry, step, known))
        if step.routes:
            found.extend(_in_routes(entry, step, known))
    return found or list(_cycles({step.id: (entry, step) for entry, step in pairs}, tuple(pipeline)))


def _unknown(name: str, known: frozenset[str]) -> tuple[str, str]:
    return f"unknown step {name!r}", nearest(name, sorted(known)) or f"steps: {', '.join(sorted(known)[:20])}"


def _in_pipeline(draft: RawFlow, known: frozenset[str]) -> Iterator[Problem]:
    doc = draft.pipeline_doc
    if doc is None or draft.pipeline is None:
        return
    if not draft.pipeline:
        yield doc.problem(("pipeline",), "the pipeline is empty", "list the steps that run, or remove `pipeline`")
    seen: set[str] = set()
    for name in draft.pipeline:
        path = doc.item(("pipeline",), name)
        if name not in known:
            yield doc.problem(path, *_unknown(name, known))
        elif name in seen:
            yield doc.problem(path, f"duplicate step {name!r} in the pipeline", "a step runs once; remove one of them")
        seen.add(name)


def _in_after(entry: RawStep, step: Step, known: frozenset[str]) -> Iterator[Problem]:
    for name in step.after or ():
        path = entry.doc.item((*entry.path, "after"), name)
        if name == step.id:
            yield entry.doc.problem(path, f"step {name!r} depends on itself", "name the step that comes before it")
        elif name not in known:
            yield entry.doc.problem(path, *_unknown(name, known))


def _in_routes(entry: RawStep, step: Step, known: frozenset[str]) -> Iterator[Problem]:
    for index, route in enumerate(step.routes):
        at = (*entry.path, "routes", index, "then")
        for place, name in enumerate(route.then):
            path = entry.doc.item(at, name)
            if name not in known:
                yield entry.doc.problem(path, *_unknown(name, known))
            elif name == step.id:
                hint = "name the steps that come after it"
                yield entry.doc.problem(path, f"step {name!r} routes to itself", hint)
            elif name in route.then[:place]:
                yield entry.doc.problem(
                    path, f"duplicate step {name!r} in the route", "a step runs once; remove one of them"
                )


def _two_makers(pairs: Sequence[tuple[RawStep, Step]]) -> Iterator[Problem]:
    makers: dict[str, str] = {}
    folders: dict[str, str] = {}
    installed: set[str] = set()
    for entry, step in pairs:
        for index, name in enumerate(path.replace("{step}", step.id) for path in step.makes):
            if (
                name in installed and step.kind == "install"
            ):  # several steps may install the same file: the last one wins
                continue
            installed |= {name} if step.kind == "install" else set()
            if name in makers:
                first = "this step" if makers[name] == step.id else f"step {makers[name]!r}"
                hint = "let one step make each artifact; use `writes` to change another step's file"
                yield entry.problem(("makes", index), f"{name!r} is already made by {first}", hint)
            above = _folders(name) if "/" in name else ()
            if name not in makers and (other := folders.get(name) or next((it for it in above if it in makers), "")):
                where = f"{min(name, other, key=len)!r} cannot be both a file and a folder"
                yield entry.problem(("makes", index), f"{where} (see {other!r})", "rename one of them")
            folders.update(dict.fromkeys(above, name))
            makers.setdefault(name, step.id)


def _folders(name: str) -> list[str]:
    return [name[:place] for place, mark in enumerate(name) if mark == "/" and place]


def _cycles(table: dict[str, tuple[RawStep, Step]], pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """Cycles in any order of steps that a run can take: the pipeline, and what each route makes of it. At most MAX_ORDERS
    orders are checked; doit refuses a cycle too, and a route cannot repeat what has run."""
    waiting, seen = [(pipeline, "")], {pipeline}
    reported: set[str] = set()
    while waiting and len(seen) < MAX_ORDERS:
        active, via = waiting.pop()
        cycle = _cycle(table, active)
        if cycle and cycle[0] not in reported:
            reported.update(cycle)
            entry = table[cycle[0]][0]
            path = " -> ".join((*cycle, cycle[0]))
            message = f"dependency cycle{via}: {path}"
            yield entry.problem(("after",), message, "remove one of them from `after`", key=True)
        for name in active:
            for route in table[name][1].routes:
                done = active[: active.index(name) + 1]
                again = next((then for then in route.then if then in done), "")
                if again and f"{name}>{again}" not in reported:
                    reported.add(f"{name}>{again}")
                    entry = table[name][0]
                    message = f"route {route.when!r} goes back to {again!r}, which has already run"
                    yield entry.problem(("routes",), message, "name steps that come later", key=True)
                ways = (*done, *route.then)
                if route.then and not again and ways not in seen:
                    seen.add(ways)
                    waiting.append((ways, f" after {route.when!r}"))


def _cycle(table: dict[str, tuple[RawStep, Step]], active: tuple[str, ...]) -> tuple[str, ...]:
    """The steps of one cycle, each depending on the next; () = none."""
    if not any(step.after for _, step in table.values()):
        return ()  # one after the other

    graph: dict[str, tuple[str, ...]] = {}
    inside = frozenset(active)
    for place, name in enumerate(active):
        after = table[name][1].after
        before = active[place - 1 : place] if after is None and place else after or ()
        graph[name] = tuple(other for other in before if other in inside)
    for name, (_, step) in table.items():
        graph.setdefault(name, step.after or ())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(_rotated(error.args[1][:0:-1], table))
    return ()


def _rotated(names: list[str], table: dict[str, tuple[RawStep, Step]]) -> list[str]:
    """Start with a step that has its own `after`: that is the line to change."""
    start = next((place for place, name in enumerate(names) if table[name][1].after), 0)
    return names[start:] + names[:start]


def missing_inputs(flow: Flow) -> list[Problem]:
    """Warnings: inputs in the run's folder that no step of the flow makes."""
    made = {said.replace("{step}", step.id) for step in flow.steps for said in step.makes}
    made |= {"input.md", *(path for path, _ in flow.inputs), *(("prd_snapshot.md",) if flow.in_sessions else ())}
    if any(step.kind == "review" for step in flow.steps):
        made |= {findings.findings_file("", step.id).lstrip("/") for step in flow.steps if step.kind == "review"}
    found = []
    for step in flow.steps:
        for said in dict.fromkeys(required_inputs(step)):
            if not said.startswith("/") and not globs.is_pattern(said) and "{" not in said and not _is_made(said, made):
                message = f"step {step.id} reads {said}, which no step of {flow.name} makes"
                near = nearest(said, sorted(made))
                hint = (
                    near
                    or f"add a step that makes it, write `{said}?` if it is optional, or put it in the run's folder"
                )
                found.append(Problem(step.origin.file, step.origin.line, step.origin.column, message, hint))
    return found


def _is_made(said: str, made: set[str]) -> bool:
    """Also matches names with a param, which can take any value."""
    open_ = (re.split(r"\{[^}]*\}", name) for name in made if "{" in name)
    return said in made or any(re.fullmatch(".+".join(map(re.escape, parts)), said) for parts in open_)


def required_inputs(step: Step) -> Iterator[str]:
    """The files that must exist when the step starts."""
    yield from (read.path for read in (*step.reads, *step.needs) if not read.optional)
    if step.phases and not step.phases_or:
        yield step.phases
    if isinstance(step.foreach, str):
        yield step.foreach


def flow_cycles(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that run themselves, directly or through others."""
    found = []
    for stem, flow in good.items():
        for step in flow.steps:
            way = _way_back(stem, step.flow, good)
            if way:
                message = f"flow cycle: {' -> '.join((stem, *way))}"
                origin = step.origin
                problem = Problem(origin.file, origin.line, origin.column, message, "remove one of the steps")
                found.append((stem, FlowError((problem,))))
                break
    return found


def _way_back(home: str, start: str, good: Mapping[str, Flow]) -> tuple[str, ...]:
    waiting: list[tuple[str, ...]] = [(start,)] if start else []
    seen = {start}
    while waiting:
        way = waiting.pop()
        if way[-1] == home:
            return way
        for step in good[way[-1]].steps if way[-1] in good else ():
            if step.flow and step.flow not in seen:
                seen.add(step.flow)
                waiting.append((*way, step.flow))
    return ()


def broken_sub_flows(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that run a broken flow, or pass it params that it does not have."""
    found, left = [], dict(good)
    while bad := [(stem, problems) for stem, flow in left.items() if (problems := tuple(_param_problems(flow, left)))]:
        for stem, problems in bad:
            found.append((stem, FlowError(problems)))
            del left[stem]
    return found


def _param_problems(flow: Flow, good: Mapping[str, Flow]) -> Iterator[Problem]:
    for step in flow.steps:
        if not step.flow:
            continue
        at = (step.origin.file, step.origin.line, step.origin.column)
        inner = good.get(step.flow)
        if inner is None:
            yield Problem(*at, f"step {step.id!r} runs flow {step.flow!r}, which has errors", "doflow validate")
            continue
        known = ["goal", *(param.name for param in inner.params)]
        given = {name for name, _ in step.params}
        for name in sorted(given.difference(known)):
            hint = nearest(name, known) or f"params: {', '.join(known)}"
            yield Problem(*at, f"flow {step.flow!r} has no param {name!r}", hint)
        given |= {"goal", *(param.name for param in flow.params)}
        for param in inner.params:
            if param.required and not param.default and param.name not in given:
                hint = f"write `params: {{{param.name}: …}}` on step {step.id!r}"
                yield Problem(*at, f"flow {step.flow!r} requires the param {param.name!r}", hint)
