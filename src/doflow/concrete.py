"""Making a step concrete: parameters put into its paths, one step per item of a `foreach`. Pure but for a file's text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from doflow.errors import UsageError
from doflow.keys import substitute
from doflow.light import regex, replace
from doflow.model import Flow, Read, Step

_SLUG = regex(r"[^a-z0-9_-]+")


def flow(found: Flow, params: Mapping[str, str]) -> Flow:
    """The flow with its parameters in every path."""
    return replace(found, steps=tuple(step(one, params) for one in found.steps))


def step(found: Step, params: Mapping[str, str]) -> Step:
    if not (found.makes or found.reads or found.needs or found.writes or found.phases):
        return found
    paths = (
        *found.makes,
        *(found.writes or ()),
        found.phases,
        *found.phases_or,
        *(read.path for read in (*found.reads, *found.needs)),
    )
    if not any("{" in path for path in paths):
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


def items(found: Step, text: str | None, name: str) -> tuple[Step, ...]:
    """One step per item: of the list in the flow, or of the YAML or JSON file with this text."""
    listed: Any = list(found.foreach) if isinstance(found.foreach, tuple) else _parsed(text, name, found)
    made: dict[str, Step] = {}
    for number, item in enumerate(listed, 1):
        part = _SLUG.sub("-", _title(item).lower()).strip("-")[:40] or str(number)
        if part in made:
            part = f"{part}-{number}"
        params = (*found.params, ("index", str(number)), *_words(item))
        clone = replace(found, id=f"{found.id}:{part}", foreach=(), params=params, gate="", clarify=False, routes=())
        made[part] = step(clone, {})
    return tuple(made.values())


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
    from doflow import load

    if text is None:
        raise UsageError(f"step {found.id} goes over the items of {name}, which does not exist", "which step makes it?")
    value = load.parse(text, name)
    if isinstance(value, dict) and "backlog" in value:
        from doflow import backlog

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
