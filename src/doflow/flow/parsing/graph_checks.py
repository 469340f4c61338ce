"""Do the steps of a flow fit together? Names that are meant, circles, two makers of one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doflow.flow.model import Flow, Step
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import Draft, Entry
from doflow.util.errors import FlowError, Problem

#: orders of steps that are looked at in one flow
MANY = 2000


def problems(draft: Draft, steps: Sequence[Step], pipeline: Sequence[str]) -> list[Problem]:
    """All of them; circles are only looked for where every name is known."""
    known = frozenset(step.id for step in steps)
    pairs = tuple(zip(draft.entries, steps, strict=True))
    found = [*_in_pipeline(draft, known), *_two_makers(pairs)]
    for entry, step in pairs:
        if step.after:
            found.extend(_in_after(entry, step, known))
        if step.routes:
            found.extend(_in_routes(entry, step, known))
    return found or list(_circles({step.id: (entry, step) for entry, step in pairs}, tuple(pipeline)))


def _unknown(name: str, known: frozenset[str]) -> tuple[str, str]:
    return f"there is no step {name!r}", nearest(name, sorted(known)) or f"steps: {', '.join(sorted(known)[:20])}"


def _in_pipeline(draft: Draft, known: frozenset[str]) -> Iterator[Problem]:
    doc = draft.pipeline_doc
    if doc is None or draft.pipeline is None:
        return
    if not draft.pipeline:
        yield doc.problem(("pipeline",), "the pipeline is empty", "list the steps that run, or leave `pipeline` out")
    seen: set[str] = set()
    for name in draft.pipeline:
        path = doc.item(("pipeline",), name)
        if name not in known:
            yield doc.problem(path, *_unknown(name, known))
        elif name in seen:
            yield doc.problem(path, f"the step {name!r} is in the pipeline twice", "a step runs once; leave one out")
        seen.add(name)


def _in_after(entry: Entry, step: Step, known: frozenset[str]) -> Iterator[Problem]:
    for name in step.after or ():
        path = entry.doc.item((*entry.path, "after"), name)
        if name == step.id:
            yield entry.doc.problem(path, f"the step {name!r} waits for itself", "name the step that comes before it")
        elif name not in known:
            yield entry.doc.problem(path, *_unknown(name, known))


def _in_routes(entry: Entry, step: Step, known: frozenset[str]) -> Iterator[Problem]:
    for index, route in enumerate(step.routes):
        at = (*entry.path, "routes", index, "then")
        for place, name in enumerate(route.then):
            path = entry.doc.item(at, name)
            if name not in known:
                yield entry.doc.problem(path, *_unknown(name, known))
            elif name == step.id:
                hint = "name the steps that come after it"
                yield entry.doc.problem(path, f"the step {name!r} routes to itself", hint)
            elif name in route.then[:place]:
                yield entry.doc.problem(
                    path, f"the step {name!r} is in the route twice", "a step runs once; leave one out"
                )


def _two_makers(pairs: Sequence[tuple[Entry, Step]]) -> Iterator[Problem]:
    makers: dict[str, str] = {}
    folders: dict[str, str] = {}
    installed: set[str] = set()
    for entry, step in pairs:
        for index, name in enumerate(said.replace("{step}", step.id) for said in step.makes):
            if name in installed and step.kind == "install":  # the last one that has something to put there
                continue
            installed |= {name} if step.kind == "install" else set()
            if name in makers:
                first = "this step" if makers[name] == step.id else f"the step {makers[name]!r}"
                hint = "give each artifact one maker; to change a file of another step use `writes`"
                yield entry.problem(("makes", index), f"{name!r} is already made by {first}", hint)
            above = _folders(name) if "/" in name else ()
            if name not in makers and (other := folders.get(name) or next((it for it in above if it in makers), "")):
                where = f"{min(name, other, key=len)!r} cannot be a file and a folder"
                yield entry.problem(("makes", index), f"{where} (see {other!r})", "put one of them elsewhere")
            folders.update(dict.fromkeys(above, name))
            makers.setdefault(name, step.id)


def _folders(name: str) -> list[str]:
    return [name[:place] for place, mark in enumerate(name) if mark == "/" and place]


def _circles(table: dict[str, tuple[Entry, Step]], pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """A circle in any order of steps that a run can take: the pipeline, and what each route makes of it. Of very many
    orders not all are looked at: doit refuses a circle too, and a route cannot bring back what has run."""
    waiting, seen = [(pipeline, "")], {pipeline}
    told: set[str] = set()
    while waiting and len(seen) < MANY:
        active, via = waiting.pop()
        circle = _circle(table, active)
        if circle and circle[0] not in told:
            told.update(circle)
            entry = table[circle[0]][0]
            path = " -> ".join((*circle, circle[0]))
            message = f"the steps wait for each other{via}: {path}"
            yield entry.problem(("after",), message, "take one of them out of `after`", key=True)
        for name in active:
            for route in table[name][1].routes:
                done = active[: active.index(name) + 1]
                again = next((then for then in route.then if then in done), "")
                if again and f"{name}>{again}" not in told:
                    told.add(f"{name}>{again}")
                    entry = table[name][0]
                    message = f"the route {route.when!r} goes back to {again!r}, which has run by then"
                    yield entry.problem(("routes",), message, "a route names steps that come later", key=True)
                ways = (*done, *route.then)
                if route.then and not again and ways not in seen:
                    seen.add(ways)
                    waiting.append((ways, f" after {route.when!r}"))


def _circle(table: dict[str, tuple[Entry, Step]], active: tuple[str, ...]) -> tuple[str, ...]:
    """The steps of one circle, each waiting for the next; () where the order can be kept."""
    if not any(step.after for _, step in table.values()):
        return ()  # one after the other
    from graphlib import CycleError, TopologicalSorter

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


def _rotated(names: list[str], table: dict[str, tuple[Entry, Step]]) -> list[str]:
    """Begin with a step that says `after` itself: that is the line to change."""
    start = next((place for place, name in enumerate(names) if table[name][1].after), 0)
    return names[start:] + names[:start]


def unmade(flow: Flow) -> list[Problem]:
    """Inputs in the run's folder that no step of the flow makes: somebody must put them there by hand. A warning."""
    made = {said.replace("{step}", step.id) for step in flow.steps for said in step.makes}
    made |= {"input.md", *(path for path, _ in flow.inputs), *(("prd_snapshot.md",) if flow.in_sessions else ())}
    if any(step.kind == "review" for step in flow.steps):
        from doflow.flow import findings

        made |= {findings.file("", step.id).lstrip("/") for step in flow.steps if step.kind == "review"}
    found = []
    for step in flow.steps:
        for said in dict.fromkeys(needed(step)):
            if not said.startswith("/") and not any(mark in said for mark in "*?[{") and not _is_made(said, made):
                message = f"step {step.id} reads {said}, which no step of {flow.name} makes"
                near = nearest(said, sorted(made))
                hint = (
                    near or f"let a step make it, write `{said}?` if it may be missing, or put it into the run's folder"
                )
                found.append(Problem(step.origin.file, step.origin.line, step.origin.column, message, hint))
    return found


def _is_made(said: str, made: set[str]) -> bool:
    """Also by a name with a param in it, which may become any."""
    import re

    open_ = (re.split(r"\{[^}]*\}", name) for name in made if "{" in name)
    return said in made or any(re.fullmatch(".+".join(map(re.escape, parts)), said) for parts in open_)


def needed(step: Step) -> Iterator[str]:
    """The files that must be there when the step begins."""
    yield from (read.path for read in (*step.reads, *step.needs) if not read.optional)
    if step.phases and not step.phases_or:
        yield step.phases
    if isinstance(step.foreach, str):
        yield step.foreach


def flow_circles(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that would run themselves, over however many others."""
    found = []
    for stem, flow in good.items():
        for step in flow.steps:
            way = _way_back(stem, step.flow, good)
            if way:
                message = f"the flows run each other: {' -> '.join((stem, *way))}"
                origin = step.origin
                problem = Problem(origin.file, origin.line, origin.column, message, "take one of the steps out")
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


def sub_flows(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that run another one which is broken, or give it params that it does not have."""
    found, left = [], dict(good)
    while bad := [(stem, told) for stem, flow in left.items() if (told := tuple(_given(flow, left)))]:
        for stem, told in bad:
            found.append((stem, FlowError(told)))
            del left[stem]
    return found


def _given(flow: Flow, good: Mapping[str, Flow]) -> Iterator[Problem]:
    for step in flow.steps:
        if not step.flow:
            continue
        at = (step.origin.file, step.origin.line, step.origin.column)
        inner = good.get(step.flow)
        if inner is None:
            yield Problem(*at, f"the step {step.id!r} runs the flow {step.flow!r}, which is broken", "doflow validate")
            continue
        known = ["goal", *(param.name for param in inner.params)]
        mine = {name for name, _ in step.params}
        for name in sorted(mine.difference(known)):
            hint = nearest(name, known) or f"params: {', '.join(known)}"
            yield Problem(*at, f"the flow {step.flow!r} has no param {name!r}", hint)
        mine |= {"goal", *(param.name for param in flow.params)}
        for param in inner.params:
            if param.required and not param.default and param.name not in mine:
                hint = f"write `params: {{{param.name}: …}}` on the step {step.id!r}"
                yield Problem(*at, f"the flow {step.flow!r} needs the param {param.name!r}", hint)
