"""Making a step concrete: parameters put into its paths, one step per item of a `foreach`. Pure but for a file's text."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping
from typing import Any

from doflow.flow.model import Flow, Read, Step
from doflow.flow.parsing import syntax as notation
from doflow.flow.substitution import substitute
from doflow.util.errors import DoflowError, UsageError
from doflow.util.records import regex, replace

_SLUG = regex(r"[^a-z0-9_-]+")


def flow(found: Flow, params: Mapping[str, str]) -> Flow:
    """The flow with its parameters in every path."""
    return replace(found, steps=tuple(step(one, params) for one in found.steps))


def step(found: Step, params: Mapping[str, str]) -> Step:
    if not any("{" in path for path in _paths(found)):
        return found
    base = {**params, "step": found.id.partition(":")[0]}
    given = {**base, **{name: substitute(value, base) for name, value in found.params}}
    return replace(
        found,
        makes=tuple(_path(path, given, found) for path in found.makes),
        writes=None if found.writes is None else tuple(_path(path, given, found) for path in found.writes),
        phases=_path(found.phases, given, found),
        phases_or=tuple(_path(path, given, found) for path in found.phases_or),
        reads=tuple(_read(read, given, found) for read in found.reads),
        needs=tuple(_read(read, given, found) for read in found.needs),
    )


def _paths(found: Step) -> list[str]:
    reads = [read.path for read in found.reads + found.needs]
    return [*found.makes, *(found.writes or ()), found.phases, *found.phases_or, *reads]


def items(
    found: Step, text: str | None, name: str, known: Collection[str] = (), among: Flow | None = None
) -> tuple[Step, ...]:
    """One step per item: of the list in the flow, or of the YAML or JSON file with this text; each has what the step
    asks of it and makes files of its own. `known`: words that the run itself has; `among`: the flow, for what to type."""
    try:
        return _items(found, text, name, known)
    except DoflowError as error:
        if among is None or not isinstance(found.foreach, str):
            raise
        hint = _way_out(found.foreach, name, among)
        raise UsageError(error.message, f"{error.hint}; {hint}" if error.hint else hint) from error


def _way_out(said: str, name: str, among: Flow) -> str:
    """How a list becomes another one."""
    go = f"doit {among.name}"
    maker = next((step for step in among.steps if said in step.makes), None)
    if maker is None:
        return f"mend {name}, then: {go}"
    noted = maker.kind == "agent"
    again = f"doflow reject {maker.id} --note '…'   then: {go}" if noted else f"{go} --force={maker.id}"
    return f"mend {name} (made by {maker.id}), then: {go}   or have it made again: {again}"


def _items(found: Step, text: str | None, name: str, known: Collection[str]) -> tuple[Step, ...]:
    listed: Any = list(found.foreach) if isinstance(found.foreach, tuple) else _parsed(text, name, found)
    place = name or "its list"
    asked = _asked(found).difference(known, dict(found.params))
    made: dict[str, Step] = {}
    makers: dict[str, int] = {}
    for number, item in enumerate(listed, 1):
        part = _SLUG.sub("-", _title(item).lower()).strip("-")[:40] or str(number)
        while part in made:
            part = f"{part}-{number}"
        words = _words(item)
        _refuse_odd(found, item, f"item {number} of {place}")
        _refuse_missing(found, asked.difference(dict(words)), f"item {number} of {place}", item)
        params = (*found.params, ("index", str(number)), *words)
        clone = replace(found, id=f"{found.id}:{part}", foreach=(), params=params, gate="", clarify=False, routes=())
        made[part] = _clone(clone, f"step {found.id}, item {number} of {place}")
        for path in map(posixpath.normpath, made[part].makes):
            if makers.setdefault(path, number) != number:
                message = f"step {found.id}: items {makers[path]} and {number} of {place} would both make {path}"
                raise UsageError(message, "give each item a name of its own, or put {index} into `makes`")
    return tuple(made.values())


def _clone(found: Step, which: str) -> Step:
    try:
        return step(found, {})
    except UsageError as error:
        raise UsageError(f"{which}: {error.message.partition(': ')[2]}", error.hint) from error


def _refuse_odd(found: Step, item: Any, which: str) -> None:
    """An item that is no word cannot stand in a path."""
    if item is None:
        raise UsageError(f"step {found.id}: {which} is empty (null)", "take it out, or write what it is")
    if isinstance(item, dict | list) and any("item" in notation.params(path) for path in found.makes):
        what = "a mapping" if isinstance(item, dict) else "a list"
        path = next(path for path in found.makes if "item" in notation.params(path))
        message = (
            f"step {found.id}: {which} is {what}, {json.dumps(item, default=str)[:60]}, which cannot stand in {path}"
        )
        raise UsageError(
            message,
            "write {item_name} there for items with keys, or {index}" if isinstance(item, dict) else "write a word",
        )


def _asked(found: Step) -> set[str]:
    """The words that the step wants of every item."""
    texts = (
        *(found.prompt.text if found.prompt else "", found.shell, *found.run, *found.check.run),
        *(*found.makes, *(found.writes or ()), *(read.path for read in (*found.reads, *found.needs))),
    )
    return {name for text in texts for name in notation.params(text) if name.startswith("item_")}


def _refuse_missing(found: Step, missing: set[str], which: str, item: Any) -> None:
    if not missing:
        return
    key = min(missing).removeprefix("item_")
    message = f"step {found.id} asks for {{item_{key}}}, and {which} "
    if not isinstance(item, dict):
        raise UsageError(
            f"{message}is no mapping: {_title(item)[:60]!r}", f"write {{{key}: …}} there, or {{item}} in the flow"
        )
    why = "holds more than a word under it" if key in item else f"has no key {key!r}"
    raise UsageError(f"{message}{why}", f"write `{key}: …` in every item")


def _path(path: str, params: Mapping[str, str], found: Step) -> str:
    whole = substitute(path, params)
    if whole != path and (".." in whole.split("/") or "\n" in whole or "\0" in whole):
        raise UsageError(
            f"step {found.id}: the path {path} becomes {whole!r}, which leaves its place", "give another value"
        )
    return whole


def _read(read: Read, params: Mapping[str, str], found: Step) -> Read:
    return replace(read, path=_path(read.path, params, found))


def _parsed(text: str | None, name: str, found: Step) -> list[Any]:
    from doflow.flow.parsing import loader as load

    if text is None:
        raise UsageError(f"step {found.id} goes over the items of {name}, which does not exist", "which step makes it?")
    value = load.parse(text, name)
    if isinstance(value, dict) and "backlog" in value:
        from doflow.flow import backlog

        return list(backlog.items(text, name))
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, list):
        raise UsageError(f"step {found.id}: {name} holds no list of items", "write a list, or one key with a list")
    return value


def _title(item: Any) -> str:
    if isinstance(item, dict):
        return str(next((item[key] for key in ("id", "name", "title") if key in item), ""))
    return str(item)


def _words(item: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(item, dict):
        return (("item", str(item)),)
    inner = tuple((f"item_{key}", str(value)) for key, value in item.items() if not isinstance(value, dict | list))
    return (("item", json.dumps(item, ensure_ascii=False)), *inner)
