"""Static checks: mistakes that can be seen in a flow without running it, reported before the first agent call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doflow.flow.model import Flow, Step
from doflow.flow.parsing import graph_checks, syntax
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import RawFlow, RawStep
from doflow.util import globs
from doflow.util.errors import Problem, UsageError

_BY_AGENT = ("agent", "implement", "review")  # commands may change protected files, and `install` is meant for them
_AWK = ("print", "next", "exit", "getline")


def problems(draft: RawFlow, steps: Sequence[Step], pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """The problems of the steps of one flow."""
    globs = tuple(glob for glob, _ in draft.protect)
    given = {name for name, _, _ in draft.params} - {"goal"} | {"previous"}
    own = "prd_snapshot.md" if draft.layout == "plan" else "input.md"
    for entry, step in zip(draft.entries, steps, strict=True):
        if step.makes:
            yield from _in_makes(entry, step, globs, (own, "doflow.lock"))
        if step.foreach and step.makes:
            yield from _item_outputs(entry, step)
        if step.only and (name := dict(step.only).get("param", next(iter(given)))) not in given:
            hint = nearest(name, sorted(given)) or f"declare it under `params:` (there are: {', '.join(sorted(given))})"
            yield entry.problem(("only", "param"), f"param {name!r} is never set, so this step would never run", hint)
    yield from _too_early({step.id: (entry, step) for entry, step in zip(draft.entries, steps, strict=True)}, pipeline)


def _in_makes(entry: RawStep, step: Step, protect: tuple[str, ...], own: tuple[str, ...]) -> Iterator[Problem]:
    """Artifacts that doflow itself writes, or that the step's agent may not write."""
    protect = (*protect, *step.protect)
    for index, said in enumerate(step.makes):
        at = ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)
        if said in own:
            yield entry.problem(at, f"{said!r} is written by doflow itself", "choose another name")
        elif step.kind in _BY_AGENT and (said[0] == "/" or protect) and (glob := _protecting_glob(said, protect)):
            hint = "choose another path, or write it with `kind: install` or a command"
            yield entry.problem(at, f"agents may not write {said!r}: {glob} is protected", hint)


def _protecting_glob(said: str, protect: tuple[str, ...]) -> str:
    """The glob that protects an artifact, as far as its path is known; '' = none."""
    path = said[1:] if said[0] == "/" else f"specs/001-x/{said}"
    every = () if "{" in said else (*globs.ALWAYS, *protect)
    return next((glob for glob in every if globs.matches((glob,), path)), "")


def refuse_protected_outputs(flow: Flow, protect: tuple[str, ...]) -> None:
    """Raise for artifacts that the settings protect: known only when a run starts."""
    for problem in protected_outputs(flow, protect):
        raise UsageError(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}", problem.hint)


def protected_outputs(flow: Flow, protect: tuple[str, ...]) -> Iterator[Problem]:
    for step in flow.steps if protect else ():
        for said in step.makes if step.kind in _BY_AGENT else ():
            if glob := _protecting_glob(said, protect):
                at = step.origin
                message = f"step {step.id} makes {said!r}, which agents may not write: doflow.yaml protects {glob}"
                hint = "choose another path, or remove the glob from `protect` in doflow.yaml"
                yield Problem(at.file, at.line, at.column, message, hint)


Table = Mapping[str, tuple[RawStep, Step]]


def _too_early(table: Table, pipeline: tuple[str, ...]) -> Iterator[Problem]:
    """Steps that read what is only made after them, whichever route the run takes."""
    makers = {said.replace("{step}", name): name for name, (_, step) in table.items() for said in step.makes}
    if not makers:
        return
    place = {name: number for number, name in enumerate(pipeline)}
    ways: list[tuple[str, ...]] | None = None
    for name, (entry, step) in table.items():
        for said in graph_checks.required_inputs(step):
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
        if len(seen) > graph_checks.MAX_ORDERS:
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


def undeclared_params(flow: Flow) -> Iterator[Problem]:
    """Warnings: names in braces in a command that are not params."""
    known = {param.name for param in flow.params} | syntax.RUN_WORDS | syntax.LOCAL_WORDS.keys()
    for step in flow.steps:
        for word, texts in (("run", (*step.run, step.shell)), ("check.run", step.check.run)):
            for name in dict.fromkeys(name for text in texts for name in syntax.params(text)):
                if name not in known and name not in _AWK and not (step.foreach and name.startswith("item_")):
                    message = (
                        f"step {step.id}: {{{name}}} in `{word}` is not a param of {flow.name} and is left unchanged"
                    )
                    yield Problem(step.origin.file, step.origin.line, step.origin.column, message,
                                  "declare it under `params:` if it should be one")  # fmt: skip


def unreachable_steps(flow: Flow) -> Iterator[Problem]:
    """Warnings: steps that no run reaches, because every route leads elsewhere or nothing names them."""
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
            if step is not None and step.routes:  # a route replaces the steps after it
                break
    for step in flow.steps:
        if step.id not in reached:
            message = f"step {step.id} never runs: neither the pipeline nor a route of {flow.name} leads to it"
            hint = "name it in `then:` of each route that should lead to it"
            hint += "" if step.id in pipeline else ", or in `pipeline:`"
            yield Problem(step.origin.file, step.origin.line, step.origin.column, message, hint)


def _item_outputs(entry: RawStep, step: Step) -> Iterator[Problem]:
    """Each item must make its own files."""
    listed = step.foreach if isinstance(step.foreach, tuple) else ()
    for index, said in enumerate(step.makes):
        named = syntax.params(said)
        at = ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)
        if len(listed) != 1 and not any(name in ("item", "index") or name.startswith("item_") for name in named):
            hint = "put {item} or {index} in its name, or {item_name} for items with keys"
            yield entry.problem(at, f"every item would make the same file {said!r}", hint)
        elif "index" not in named:
            for place, item in enumerate(listed):
                if item in listed[:place]:
                    hint = "remove one, or put {index} in `makes`"
                    yield entry.problem(
                        ("foreach", place), f"duplicate item {item!r}: both would make the same file", hint
                    )
                    return


def refuse_unsupported(flow: Flow) -> None:
    """Raise for everything in the flow that this version does not support yet; nothing is skipped silently."""
    found = [
        f"{step.origin.file}:{step.origin.line}:{step.origin.column}: step {step.id}: {words}"
        for step in flow.steps
        for words in _unsupported(step)
    ]
    if found:
        raise UsageError("\n".join(found), "this version of doflow does not support it yet: remove it and run again")


def _unsupported(step: Step) -> Iterator[str]:
    if step.foreach and step.kind not in ("agent", "shell"):
        yield f"`foreach` is not supported for kind {step.kind} yet"
