"""Checks of the steps of a flow: unknown names, dependency cycles, artifacts that two steps or nobody may make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from doflow.flow.model import BY_AGENT, Flow, Step
from doflow.flow.parsing import syntax
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import RawFlow, RawStep
from doflow.util import globs
from doflow.util.errors import Problem, UsageError

#: how many orders of steps are checked in one flow
MAX_ORDERS = 2000

Table = Mapping[str, tuple[RawStep, Step]]


def problems(draft: RawFlow, steps: Sequence[Step], pipeline: tuple[str, ...]) -> list[Problem]:
    """All problems; cycles are only searched for if every name is known."""
    known = frozenset(step.id for step in steps)
    pairs = tuple(zip(draft.entries, steps, strict=True))
    table = {step.id: (entry, step) for entry, step in pairs}
    found = [*_in_pipeline(draft, known), *_two_makers(pairs)]
    for entry, step in pairs:
        found += [*_in_after(entry, step, known), *_in_routes(entry, step, known)]
    found = found or list(_cycles(table, pipeline))
    given = {name for name, _, _ in draft.params} - {"goal"} | {"previous"}
    protect = tuple(glob for glob, _ in draft.protect)
    own = ("prd_snapshot.md" if draft.layout == "plan" else "input.md", "doflow.lock")
    for entry, step in pairs:
        found += [*_in_makes(entry, step, (*protect, *step.protect), own), *_item_outputs(entry, step)]
        if step.only and (name := dict(step.only).get("param", next(iter(given)))) not in given:
            hint = nearest(name, sorted(given)) or f"declare it under `params:` (there are: {', '.join(sorted(given))})"
            message = f"param {name!r} is never set, so this step would never run"
            found.append(entry.problem(("only", "param"), message, hint))
    return [*found, *_too_early(table, pipeline)]


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
                hint = "a step runs once; remove one of them"
                yield entry.doc.problem(path, f"duplicate step {name!r} in the route", hint)


def _two_makers(pairs: Sequence[tuple[RawStep, Step]]) -> Iterator[Problem]:
    makers: dict[str, str] = {}
    folders: dict[str, str] = {}
    installed: set[str] = set()
    for entry, step in pairs:
        for index, name in enumerate(path.replace("{step}", step.id) for path in step.makes):
            if name in installed and step.kind == "install":
                continue  # several steps may install the same file: the last one wins
            installed |= {name} if step.kind == "install" else set()
            if name in makers:
                first = "this step" if makers[name] == step.id else f"step {makers[name]!r}"
                hint = "let one step make each artifact; use `writes` to change another step's file"
                yield entry.problem(("makes", index), f"{name!r} is already made by {first}", hint)
            above = [name[:place] for place, mark in enumerate(name) if mark == "/" and place]
            if name not in makers and (other := folders.get(name) or next((it for it in above if it in makers), "")):
                where = f"{min(name, other, key=len)!r} cannot be both a file and a folder"
                yield entry.problem(("makes", index), f"{where} (see {other!r})", "rename one of them")
            folders.update(dict.fromkeys(above, name))
            makers.setdefault(name, step.id)


def _cycles(table: Table, pipeline: tuple[str, ...]) -> Iterator[Problem]:
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


def _cycle(table: Table, active: tuple[str, ...]) -> tuple[str, ...]:
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
        names = error.args[1][:0:-1]
        start = next((place for place, name in enumerate(names) if table[name][1].after), 0)
        return (*names[start:], *names[:start])  # starts with a step that has its own `after`: the line to change
    return ()


def _in_makes(entry: RawStep, step: Step, protect: tuple[str, ...], own: tuple[str, ...]) -> Iterator[Problem]:
    """Artifacts that doflow itself writes, or that the step's agent may not write."""
    for index, path in enumerate(step.makes):
        if path in own:
            yield entry.problem(_made_at(entry, index), f"{path!r} is written by doflow itself", "choose another name")
        elif step.kind in BY_AGENT and (path[0] == "/" or protect) and (glob := _protecting_glob(path, protect)):
            hint = "choose another path, or write it with `kind: install` or a command"
            message = f"agents may not write {path!r}: {glob} is protected"
            yield entry.problem(_made_at(entry, index), message, hint)


def _made_at(entry: RawStep, index: int) -> tuple[str | int, ...]:
    return ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)


def _protecting_glob(artifact: str, protect: tuple[str, ...]) -> str:
    """The glob that protects an artifact, as far as its path is known; '' = none."""
    path = artifact[1:] if artifact[0] == "/" else f"specs/001-x/{artifact}"
    every = () if "{" in artifact else (*globs.ALWAYS, *protect)
    return next((glob for glob in every if globs.matches((glob,), path)), "")


def refuse_protected_outputs(flow: Flow, protect: tuple[str, ...]) -> None:
    """Raise for artifacts that the settings protect: known only when a run starts."""
    for problem in protected_outputs(flow, protect):
        raise UsageError(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}", problem.hint)


def protected_outputs(flow: Flow, protect: tuple[str, ...]) -> Iterator[Problem]:
    for step in flow.steps if protect else ():
        for path in step.makes if step.kind in BY_AGENT else ():
            if glob := _protecting_glob(path, protect):
                message = f"step {step.id} makes {path!r}, which agents may not write: doflow.yaml protects {glob}"
                hint = "choose another path, or remove the glob from `protect` in doflow.yaml"
                yield step.origin.problem(message, hint)


def _item_outputs(entry: RawStep, step: Step) -> Iterator[Problem]:
    """Each item must make its own files."""
    listed = step.foreach if isinstance(step.foreach, tuple) else ()
    for index, path in enumerate(step.makes if step.foreach else ()):
        named = syntax.params(path)
        if len(listed) != 1 and not any(name in ("item", "index") or name.startswith("item_") for name in named):
            hint = "put {item} or {index} in its name, or {item_name} for items with keys"
            yield entry.problem(_made_at(entry, index), f"every item would make the same file {path!r}", hint)
        elif "index" not in named and (twice := [n for n, item in enumerate(listed) if item in listed[:n]]):
            message = f"duplicate item {listed[twice[0]]!r}: both would make the same file"
            yield entry.problem(("foreach", twice[0]), message, "remove one, or put {index} in `makes`")
            return


def _too_early(table: Table, pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """Steps that read what is only made after them, whichever route the run takes."""
    makers = {said.replace("{step}", name): name for name, (_, step) in table.items() for said in step.makes}
    if not makers:
        return
    place = {name: number for number, name in enumerate(pipeline)}
    ways: list[tuple[str, ...]] | None = None
    for name, (entry, step) in table.items():
        for said in required_inputs(step):
            maker = makers.get(said, "")
            if not maker or place.get(maker, len(place)) < place.get(name, -1) or step.kind == "install":
                continue
            ways = _ways(table, pipeline) if ways is None else ways
            mine = [way for way in ways if name in way]
            late = any(maker in way for way in mine) and not any(_before(maker, name, way, table) for way in mine)
            if late and (path := _input_key(entry, said)):
                who = "this step itself" if maker == name else f"step {maker!r}, which runs later"
                hint = f"move the step, or write `{said}?` if it is optional"
                yield entry.problem(path, f"{said!r} is only made by {who}", hint)


def _input_key(entry: RawStep, said: str) -> tuple[str | int, ...]:
    """The key of a step that names this input."""
    for word in ("reads", "needs", "phases", "foreach"):
        value = entry.value.get(word)
        for index, text in enumerate([value] if isinstance(value, str) else value or ()):
            if text.partition("#")[0] == said:
                return (word,) if isinstance(value, str) else (word, index)
    return ()


def _ways(table: Table, pipeline: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every order of steps that a run can take; [] if there are too many."""
    waiting, seen = [pipeline], {pipeline}
    while waiting:
        way = waiting.pop()
        if len(seen) > MAX_ORDERS:
            return []
        for place, name in enumerate(way):
            for route in table[name][1].routes if name in table else ():
                other = (*way[: place + 1], *(then for then in route.then if then not in way[: place + 1]))
                if route.then and other not in seen:
                    seen.add(other)
                    waiting.append(other)
    return list(seen)


def _before(first: str, then: str, way: tuple[str, ...], table: Table) -> bool:
    """Does `first` run before `then` in this order: because of its position, or as a dependency?"""
    if first not in way or first == then:
        return False
    asked, waiting = {then}, [then]
    while waiting:
        name = waiting.pop()
        after = table[name][1].after if name in table else None
        before = way[: way.index(name)][-1:] if after is None and name in way else after or ()
        waiting += [other for other in before if other not in asked]
        asked.update(before)
    return first in asked or (way.index(first) < way.index(then))


def required_inputs(step: Step) -> Iterator[str]:
    """The files that must exist when the step starts."""
    yield from (read.path for read in (*step.reads, *step.needs) if not read.optional)
    if step.phases and not step.phases_or:
        yield step.phases
    if isinstance(step.foreach, str):
        yield step.foreach
