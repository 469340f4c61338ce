"""Expands a step: parameters substituted in its paths, one step per item of a `foreach`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from doflow.flow import backlog
from doflow.flow.model import Flow, Read, Step
from doflow.flow.parsing import loader, syntax
from doflow.flow.parsing.syntax import substitute
from doflow.util.errors import DoflowError, UsageError
from doflow.util.hints import Next

_SLUG = re.compile(r"[^a-z0-9_-]+")


def expand_flow(found: Flow, params: Mapping[str, str]) -> Flow:
    """The flow with its parameters substituted in every path."""
    return replace(found, steps=tuple(expand_step(one, params) for one in found.steps))


def expand_step(found: Step, params: Mapping[str, str], which: str = "") -> Step:
    """One step with its parameters in every path. `which`: how an error names the step, if not by its id."""
    if not any("{" in path for path in found.paths):
        return found
    base = {**params, "step": found.id.partition(":")[0]}
    given = {**base, **{name: substitute(value, base) for name, value in found.params}}
    which = which or f"step {found.id}"
    return replace(
        found,
        makes=tuple(_path(path, given, which) for path in found.makes),
        writes=None if found.writes is None else tuple(_path(path, given, which) for path in found.writes),
        phases=_path(found.phases, given, which),
        phases_or=tuple(_path(path, given, which) for path in found.phases_or),
        reads=tuple(_read(read, given, which) for read in found.reads),
        needs=tuple(_read(read, given, which) for read in found.needs),
    )


def expand_items(
    found: Step, text: str | None, name: str, known: Collection[str] = (), among: Flow | None = None
) -> tuple[Step, ...]:
    """One step per item of the list in the flow, or of the YAML or JSON file with this text; each item must have the keys
    that the step uses and make its own files. `known`: params of the run; `among`: the flow, for hints."""
    try:
        return _items(found, text, name, known)
    except DoflowError as error:
        if among is None or not isinstance(found.foreach, str):
            raise
        maker = next((step for step in among.steps if found.foreach in step.makes), None)
        fix = f"fix {name} (made by {maker.id})" if maker else f"fix {name}"
        advice = f"{error.hint}; {fix}" if error.hint else fix
        raise UsageError(error.message, advice, _way_out(maker, among)) from error


def _way_out(maker: Step | None, among: Flow) -> tuple[Next, ...]:
    """How a list becomes another one."""
    go = ("doit", among.name)
    then = Next(go, link="then")
    if maker is None:
        return (then,)
    why = "regenerate it"
    if maker.kind == "agent":
        return then, Next(("doflow", "reject", maker.id, "--note", "…"), why, link="or"), then
    return then, Next((*go, f"--force={maker.id}"), why, link="or")


def _items(found: Step, text: str | None, name: str, known: Collection[str]) -> tuple[Step, ...]:
    listed: Any = list(found.foreach) if isinstance(found.foreach, tuple) else _parsed(text, name, found)
    place = name or "its list"
    asked = _item_params(found).difference(known, dict(found.params))
    made: dict[str, Step] = {}
    makers: dict[str, int] = {}
    for number, item in enumerate(listed, 1):
        part = _SLUG.sub("-", _title(item).lower()).strip("-")[:40] or str(number)
        while part in made:
            part = f"{part}-{number}"
        words = _words(item)
        _refuse_unusable(found, item, f"item {number} of {place}")
        _refuse_missing(found, asked.difference(dict(words)), f"item {number} of {place}", item)
        params = (*found.params, ("index", str(number)), *words)
        clone = replace(found, id=f"{found.id}:{part}", foreach=(), params=params, gate="", clarify=False, routes=())
        made[part] = expand_step(clone, {}, f"step {found.id}, item {number} of {place}")
        for path in map(posixpath.normpath, made[part].makes):
            if makers.setdefault(path, number) != number:
                message = f"step {found.id}: items {makers[path]} and {number} of {place} would both make {path}"
                raise UsageError(message, "give each item a unique name, or put {index} in `makes`")
    return tuple(made.values())


def _refuse_unusable(found: Step, item: Any, which: str) -> None:
    """An item in a path must be a single word."""
    if item is None:
        raise UsageError(f"step {found.id}: {which} is empty (null)", "remove it, or write a value")
    if isinstance(item, dict | list) and any("item" in syntax.params(path) for path in found.makes):
        what = "a mapping" if isinstance(item, dict) else "a list"
        path = next(path for path in found.makes if "item" in syntax.params(path))
        shown = json.dumps(item, default=str)[:60]
        hint = "write {item_name} there for items with keys, or {index}" if isinstance(item, dict) else "write a word"
        raise UsageError(f"step {found.id}: {which} is {what}, {shown}, which cannot be part of {path}", hint)


def _item_params(found: Step) -> set[str]:
    """The `item_…` params that the step uses."""
    texts = (
        *(found.prompt.text if found.prompt else "", found.shell, *found.run, *found.check.run),
        *(*found.makes, *(found.writes or ()), *(read.path for read in (*found.reads, *found.needs))),
    )
    return {name for text in texts for name in syntax.params(text) if name.startswith("item_")}


def _refuse_missing(found: Step, missing: set[str], which: str, item: Any) -> None:
    if not missing:
        return
    key = min(missing).removeprefix("item_")
    message = f"step {found.id} uses {{item_{key}}}, but {which} "
    if not isinstance(item, dict):
        hint = f"write {{{key}: …}} there, or {{item}} in the flow"
        raise UsageError(f"{message}is not a mapping: {_title(item)[:60]!r}", hint)
    why = f"has no single value for {key!r}" if key in item else f"has no key {key!r}"
    raise UsageError(f"{message}{why}", f"write `{key}: …` in every item")


def _path(path: str, params: Mapping[str, str], which: str) -> str:
    whole = substitute(path, params)
    if whole != path and (".." in whole.split("/") or "\n" in whole or "\0" in whole):
        message = f"{which}: the path {path} becomes {whole!r}, which is outside its folder"
        raise UsageError(message, "use another value")
    return whole


def _read(read: Read, params: Mapping[str, str], which: str) -> Read:
    return replace(read, path=_path(read.path, params, which))


def _parsed(text: str | None, name: str, found: Step) -> list[Any]:
    if text is None:
        raise UsageError(f"step {found.id} iterates over {name}, which does not exist", "add a step that makes it")
    value = loader.parse_yaml(text, name)
    if isinstance(value, dict) and "backlog" in value:
        return list(backlog.foreach_items(text, name))
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, list):
        raise UsageError(f"step {found.id}: {name} is not a list of items", "write a list, or one key with a list")
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
