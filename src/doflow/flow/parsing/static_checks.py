"""What no run of a flow could do well, seen in its words alone: refused before the first call is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doflow.flow.model import Flow, Step
from doflow.flow.parsing import graph_checks as wiring, syntax as notation
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import Draft, Entry
from doflow.util.errors import Problem, UsageError

_BY_AGENT = ("agent", "implement", "review")  # a command is not held to `protect`, and `install` is for such files
_AWK = ("print", "next", "exit", "getline")


def problems(draft: Draft, steps: Sequence[Step], pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """Of the steps of one flow."""
    globs = tuple(glob for glob, _ in draft.protect)
    given = {name for name, _, _ in draft.params} - {"goal"} | {"previous"}
    own = "prd_snapshot.md" if draft.layout == "plan" else "input.md"
    for entry, step in zip(draft.entries, steps, strict=True):
        if step.makes:
            yield from _in_makes(entry, step, globs, (own, "doflow.lock"))
        if step.foreach and step.makes:
            yield from _of_items(entry, step)
        if step.only and (name := dict(step.only).get("param", next(iter(given)))) not in given:
            hint = nearest(name, sorted(given)) or f"declare it under `params:` (there are: {', '.join(sorted(given))})"
            yield entry.problem(("only", "param"), f"{name!r} is never given, so the step would never be done", hint)
    yield from _too_early({step.id: (entry, step) for entry, step in zip(draft.entries, steps, strict=True)}, pipeline)


def _in_makes(entry: Entry, step: Step, protect: tuple[str, ...], own: tuple[str, ...]) -> Iterator[Problem]:
    """Files that doflow itself writes, and files that the step's agent may not."""
    protect = (*protect, *step.protect)
    for index, said in enumerate(step.makes):
        at = ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)
        if said in own:
            yield entry.problem(at, f"doflow itself writes {said!r}, no step does", "choose another name")
        elif step.kind in _BY_AGENT and (said[0] == "/" or protect) and (glob := _barred(said, protect)):
            hint = "choose another place, or let `kind: install` or a command put it there"
            yield entry.problem(at, f"no agent may write {said!r}: {glob} is protected", hint)


def _barred(said: str, protect: tuple[str, ...]) -> str:
    """The glob that bars an artifact, as far as its path is known; '' = none."""
    from doflow.util import globs

    path = said[1:] if said[0] == "/" else f"specs/001-x/{said}"
    every = () if "{" in said else (*globs.ALWAYS, *protect)
    return next((glob for glob in every if globs.matches((glob,), path)), "")


def refuse(flow: Flow, protect: tuple[str, ...]) -> None:
    """The same for what the settings protect: known only when a run begins."""
    for problem in barred(flow, protect):
        raise UsageError(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}", problem.hint)


def barred(flow: Flow, protect: tuple[str, ...]) -> Iterator[Problem]:
    for step in flow.steps if protect else ():
        for said in step.makes if step.kind in _BY_AGENT else ():
            if glob := _barred(said, protect):
                at = step.origin
                message = f"step {step.id} makes {said!r}, which no agent may write: doflow.yaml protects {glob}"
                hint = "choose another place, or take it out of `protect` in doflow.yaml"
                yield Problem(at.file, at.line, at.column, message, hint)


Table = Mapping[str, tuple[Entry, Step]]


def _too_early(table: Table, pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """A step that reads what is only made after it, whichever way the run takes."""
    makers = {said.replace("{step}", name): name for name, (_, step) in table.items() for said in step.makes}
    if not makers:
        return
    place = {name: number for number, name in enumerate(pipeline)}
    ways: list[tuple[str, ...]] | None = None
    for name, (entry, step) in table.items():
        for said in wiring.needed(step):
            maker = makers.get(said, "")
            if not maker or place.get(maker, len(place)) < place.get(name, -1) or step.kind == "install":
                continue
            ways = _ways(table, pipeline) if ways is None else ways
            mine = [way for way in ways if name in way]
            late = any(maker in way for way in mine) and not any(_before(maker, name, way, table) for way in mine)
            if late and (path := _said(entry, said)):
                who = "this step itself" if maker == name else f"the step {maker!r}, which comes later"
                hint = f"move the step, or write `{said}?` if it may be missing"
                yield entry.problem(path, f"{said!r} is only made by {who}", hint)


def _said(entry: Entry, said: str) -> tuple[str | int, ...]:
    """Where a step asks for a file."""
    for word in ("reads", "needs", "phases", "foreach"):
        value = entry.value.get(word)
        for index, text in enumerate([value] if isinstance(value, str) else value or ()):
            if text.partition("#")[0] == said:
                return (word,) if isinstance(value, str) else (word, index)
    return ()


def _ways(table: Table, pipeline: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every order of steps that a run can take; none where there are too many to look at."""
    waiting, seen = [pipeline], {pipeline}
    while waiting:
        way = waiting.pop()
        if len(seen) > wiring.MANY:
            return []
        for place, name in enumerate(way):
            for route in table[name][1].routes if name in table else ():
                other = (*way[: place + 1], *(then for then in route.then if then not in way[: place + 1]))
                if route.then and other not in seen:
                    seen.add(other)
                    waiting.append(other)
    return list(seen)


def _before(first: str, then: str, way: tuple[str, ...], table: Table) -> bool:
    """Is `first` done before `then` on this way: because it stands there, or because it is waited for?"""
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


def loose(flow: Flow) -> Iterator[Problem]:
    """Words in the braces of a command that are no params: they may be meant so. A warning."""
    known = {param.name for param in flow.params} | notation.RUN_WORDS | notation.LOCAL_WORDS.keys()
    for step in flow.steps:
        for word, texts in (("run", (*step.run, step.shell)), ("check.run", step.check.run)):
            for name in dict.fromkeys(name for text in texts for name in notation.params(text)):
                if name not in known and name not in _AWK and not (step.foreach and name.startswith("item_")):
                    message = f"step {step.id}: {{{name}}} in `{word}` is no param of {flow.name} and stays as it is"
                    yield Problem(step.origin.file, step.origin.line, step.origin.column, message,
                                  "declare it under `params:` if it is to be one")  # fmt: skip


def unreached(flow: Flow) -> Iterator[Problem]:
    """Steps that no run ever comes to: behind routes that all lead elsewhere, or named by nothing. A warning."""
    if flow.file.endswith((".dot", ".gv")):
        return
    table = {step.id: step for step in flow.steps}
    reached: set[str] = set()
    pipeline = flow.pipeline or tuple(table)
    waiting = [pipeline]
    while waiting:
        for name in waiting.pop():
            step = table.get(name)
            if step is not None and name not in reached:
                reached.add(name)
                waiting += [*((other,) for other in step.after or ()), *(route.then for route in step.routes)]
            if step is not None and step.routes:  # what stands behind it in this order gives way to what a route names
                break
    for step in flow.steps:
        if step.id not in reached:
            message = f"step {step.id} is never done: no pipeline and no route of {flow.name} leads to it"
            hint = "name it in `then:` of each route that is to lead to it"
            hint += "" if step.id in pipeline else ", or in `pipeline:`"
            yield Problem(step.origin.file, step.origin.line, step.origin.column, message, hint)


def _of_items(entry: Entry, step: Step) -> Iterator[Problem]:
    """Every item makes files of its own."""
    listed = step.foreach if isinstance(step.foreach, tuple) else ()
    for index, said in enumerate(step.makes):
        named = notation.params(said)
        at = ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)
        if len(listed) != 1 and not any(name in ("item", "index") or name.startswith("item_") for name in named):
            hint = "put {item} or {index} into its name, or for items with keys {item_name}"
            yield entry.problem(at, f"every item would make the same file {said!r}", hint)
        elif "index" not in named:
            for place, item in enumerate(listed):
                if item in listed[:place]:
                    hint = "leave one out, or put {index} into `makes`"
                    yield entry.problem(
                        ("foreach", place), f"the item {item!r} is listed twice: both make one file", hint
                    )
                    return
