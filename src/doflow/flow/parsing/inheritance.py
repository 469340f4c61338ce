"""Raw flows: a flow file as written, with the changes of `extends` applied and nothing else checked yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from doflow.flow.parsing.document import Doc, Path, nearest
from doflow.util.errors import FlowError, Problem

_PATCHES = ("insert_before", "insert_after", "replace", "remove")


@dataclass(frozen=True, slots=True)
class RawStep:
    """A step as written, and its position."""

    id: str
    value: dict[str, Any]
    doc: Doc
    path: Path

    def problem(self, at: Path, message: str, hint: str = "", key: bool = False) -> Problem:
        return self.doc.problem((*self.path, *at), message, hint, key)


@dataclass(frozen=True, slots=True)
class RawFlow:
    """A flow as written; `pipeline` is None if the file has none."""

    doc: Doc
    about: str = ""
    layout: str = ""
    entries: tuple[RawStep, ...] = ()
    params: tuple[tuple[str, dict[str, Any], Doc], ...] = ()
    defaults: tuple[tuple[dict[str, Any], Doc], ...] = ()
    protect: tuple[tuple[str, Doc], ...] = ()
    pipeline: tuple[str, ...] | None = None
    pipeline_doc: Doc | None = None


def apply_extends(doc: Doc, base: Callable[[str], RawFlow]) -> RawFlow:
    """The raw flow of a file; `base` returns the raw flow that it extends."""
    name = doc.value.get("extends")
    if name is None:
        problems = _without_extends(doc)
        start = RawFlow(doc)
    else:
        start = base(name)
        problems = _misused(doc, start)
    if problems:
        raise FlowError(tuple(problems))
    left = _patched(doc, start)
    if not left.entries and name is not None:
        message = f"the flow has no steps: all of {name!r} are removed"
        hint = "keep at least one step, or write a separate flow"
        raise FlowError((doc.problem(("remove",), message, hint, key=True),))
    return _own(doc, left)


def _without_extends(doc: Doc) -> list[Problem]:
    hint = "add `extends: NAME`, or list the steps under `steps`"
    patches = [key for key in _PATCHES if key in doc.value]
    found = [doc.problem((key,), f"{key!r} only works with `extends`", hint, key=True) for key in patches]
    if not doc.value.get("steps") and not found:
        found.append(doc.problem(("steps",), "the flow has no steps", "add `steps:` with at least one step", key=True))
    return found


def _misused(doc: Doc, base: RawFlow) -> list[Problem]:
    known = {entry.id for entry in base.entries}
    listed = f"its steps: {', '.join(sorted(known))}"
    found = []
    if "steps" in doc.value:
        hint = "use insert_before, insert_after, replace and remove"
        found.append(doc.problem(("steps",), "a flow with `extends` cannot have `steps`", hint, key=True))
    for path, name in _anchors(doc):
        if name not in known:
            message = f"flow {doc.value['extends']!r} has no step {name!r}"
            found.append(doc.problem(path, message, nearest(name, sorted(known)) or listed, key=True))
    seen = set(known)
    for word, anchor, name in _inserted(doc):
        if name in seen:
            hint = f"choose another name, or use `replace: {{{name}: …}}`"
            found.append(doc.problem((word, anchor, name), f"step {name!r} already exists", hint, key=True))
        seen.add(name)
    return found


def _anchors(doc: Doc) -> Iterable[tuple[Path, str]]:
    for word in ("insert_before", "insert_after", "replace"):
        yield from (((word, name), name) for name in doc.value.get(word, {}))
    yield from ((doc.item(("remove",), name), name) for name in as_list(doc.value.get("remove")))


def _inserted(doc: Doc) -> Iterable[tuple[str, str, str]]:
    for word in ("insert_before", "insert_after"):
        for anchor, steps in doc.value.get(word, {}).items():
            yield from ((word, anchor, name) for name in steps)


def _patched(doc: Doc, base: RawFlow) -> RawFlow:
    for word in ("insert_before", "insert_after"):
        for anchor, steps in doc.value.get(word, {}).items():
            new = tuple(RawStep(name, value, doc, (word, anchor, name)) for name, value in steps.items())
            base = _insert(base, anchor, new, after=word == "insert_after")
    swap = doc.value.get("replace", {})
    gone = set(as_list(doc.value.get("remove")))
    kept = (entry for entry in base.entries if entry.id not in gone)
    entries = (RawStep(e.id, swap[e.id], doc, ("replace", e.id)) if e.id in swap else _without(e, gone) for e in kept)
    pipeline = None if base.pipeline is None else tuple(name for name in base.pipeline if name not in gone)
    return replace(base, entries=tuple(entries), pipeline=pipeline)


def _insert(base: RawFlow, anchor: str, new: tuple[RawStep, ...], after: bool) -> RawFlow:
    names = [entry.id for entry in new]
    entries: list[RawStep] = []
    for entry in base.entries:
        group = [_with_routes(entry, lambda then: _spliced(then, anchor, names, after))]
        if entry.id == anchor:
            group = [*group, *new] if after else [*new, *group]
        entries += group
    pipeline = None if base.pipeline is None else tuple(_spliced(base.pipeline, anchor, names, after))
    return replace(base, entries=tuple(entries), pipeline=pipeline)


def _spliced(names: Iterable[str], anchor: str, new: list[str], after: bool) -> list[str]:
    group = [anchor, *new] if after else [*new, anchor]
    return [one for name in names for one in (group if name == anchor else [name])]


def _without(entry: RawStep, gone: set[str]) -> RawStep:
    """The step without references to removed steps."""
    if not gone:
        return entry
    entry = _with_routes(entry, lambda then: [name for name in then if name not in gone])
    after = entry.value.get("after")
    if after is None or gone.isdisjoint(as_list(after)):
        return entry
    left = [name for name in as_list(after) if name not in gone]
    value = {key: word for key, word in entry.value.items() if key != "after"}
    return replace(entry, value={**value, "after": left} if left else value)


def _with_routes(entry: RawStep, change: Callable[[list[str]], list[str]]) -> RawStep:
    routes = entry.value.get("routes")
    if not routes:
        return entry
    new = [{**rule, "then": change(rule["then"])} if "then" in rule else rule for rule in routes]
    return replace(entry, value={**entry.value, "routes": new})


def _own(doc: Doc, base: RawFlow) -> RawFlow:
    """The values of the file itself over those of the flow it extends."""
    value = doc.value
    params = {name: (name, param, where) for name, param, where in base.params}
    params |= {name: (name, param, doc) for name, param in value.get("params", {}).items()}
    steps = value.get("steps", {})
    return RawFlow(
        doc=doc,
        about=value.get("about", base.about),
        layout=value.get("layout", base.layout),
        entries=base.entries + tuple(RawStep(name, step, doc, ("steps", name)) for name, step in steps.items()),
        params=tuple(params.values()),
        defaults=(*base.defaults, (value.get("defaults", {}), doc)),
        protect=base.protect + tuple((glob, doc) for glob in as_list(value.get("protect"))),
        pipeline=tuple(value["pipeline"]) if "pipeline" in value else base.pipeline,
        pipeline_doc=doc if "pipeline" in value else base.pipeline_doc,
    )


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """One text, or several."""
    return [value] if isinstance(value, str) else list(value or ())
