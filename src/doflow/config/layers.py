"""Settings laid over each other: defaults, file, environment, flags; and for each value who said it last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from doflow.flow.parsing import document as strict, schema, syntax as notation
from doflow.flow.parsing.document import Doc, nearest
from doflow.util.errors import FlowError, Problem

if TYPE_CHECKING:
    from doflow.flow.parsing.schema_errors import Fault

FILE = "doflow.yaml"
PREFIX = "DOFLOW_SET_"

Keys = tuple[str, ...]

DEFAULTS: dict[str, Any] = {
    "agents": {"default": {"use": "claude", "model": "sonnet"}},
    "route_agents": {},
    "gates": {},
    "auto_approve": False,
    "review_mode": "llm",
    "command_variant": "",
    "timeouts": {"idle": "10m", "max": "2h", "steps": {}},
    "retry": {"enabled": True, "max_retries": 2, "backoff_seconds": 30},
    "rate_limit": {"wait": False},
    "budget": {"usd": None, "tokens": None, "on_exceed": "pause"},
    "prices": {},
    "triggers": [],
    "review_command": [],
    "notify": {"command": []},
    "protect": [],
    "git": {"branch": "new", "commit_artifacts": True, "verify": False},
    "pipelines": {},
    "layout": "specs",
    "supervision": {
        "signals": ".claude/attractor/signals",
        "parallel": 3,
        "retries": 3,
        "stuck": "5m",
        "validate": [],
        "reviewer": "",
        "judge": "",
        "answers": {},
        "style": "orchestrator",
        "keep_days": 14,
    },
}


class Book:
    """All values laid over each other, and for each who said it last."""

    def __init__(self, doc: Doc | None) -> None:
        self.doc = doc
        self.value: dict[str, Any] = {}
        self.where: dict[Keys, str] = {}
        self.add(DEFAULTS, "default")
        if doc is not None:
            self.add(doc.value, FILE)

    def add(self, layer: Mapping[str, Any], where: str, at: Keys = (), into: dict[str, Any] | None = None) -> None:
        target = self.value if into is None else into
        for key, entry in layer.items():
            path = (*at, key)
            if isinstance(entry, dict):
                self.add(entry, where, path, target.setdefault(key, {}))
            else:
                target[key] = entry
                self.where[path] = where

    def said(self, path: Keys) -> str:
        """Who said it, with the line where it was the file."""
        where = self.where.get(path, "default")
        return f"{FILE}:{self.doc.line(path)}" if where == FILE and self.doc else where

    def problem(self, path: Keys, message: str, hint: str, key: bool = False, item: str = "") -> Problem:
        """At the value, at its key, or at the one item of a list."""
        where = next((who for leaf, who in self.where.items() if leaf[: len(path)] == path and who != "default"), FILE)
        if where == FILE and self.doc:
            return self.doc.problem(self.doc.item(path, item) if item else path, message, hint, key)
        return Problem(where, 1, 1, message, hint)


def from_environment(book: Book, name: str, text: str) -> list[Problem]:
    parts = name.removeprefix(PREFIX).lower().split("__")
    try:
        path = _known(parts, book)
    except notation.Bad as bad:
        return [Problem(name, 1, 1, bad.message, bad.hint)]
    faults: tuple[Fault, ...] = ()
    for value in _meanings(text, name):
        layer = _nested(path, value)
        found = schema.faults(layer, "doflow")
        if not found:
            book.add(layer, name)
            return []
        faults = faults or found
    return [Problem(name, 1, 1, fault.message, fault.hint) for fault in faults]


def _meanings(text: str, name: str) -> Iterator[object]:
    """What a variable's text can mean: a YAML value, else the text as it stands."""
    if not text:
        yield from ("", None)
    elif text.replace("_", "").replace("-", "").replace(".", "").isalnum():
        yield strict.scalar(text)
    else:
        from doflow.flow.parsing import loader as load

        with suppress(FlowError):
            yield load.parse(text, name)
    yield text


def from_flag(book: Book, name: str, value: object) -> list[Problem]:
    shown = "--" + name.replace("_", "-")
    try:
        path = _known(name.split("."), book)
    except notation.Bad as bad:
        return [Problem(shown, 1, 1, bad.message, bad.hint)]
    layer = _nested(path, list(value) if isinstance(value, tuple) else value)
    found = schema.faults(layer, "doflow")
    if not found:
        book.add(layer, shown)
    return [Problem(shown, 1, 1, fault.message, fault.hint) for fault in found]


def _known(parts: list[str], book: Book) -> Keys:
    """The path that the parts mean; names a person chose are found whether written with - or _."""
    tree = schema.read("doflow")
    node, here = tree, book.value
    path: list[str] = []
    for part in parts:
        if "$ref" in node:
            node = tree["$defs"][node["$ref"].removeprefix("#/$defs/")]
        fixed, free = node.get("properties", {}), node.get("additionalProperties")
        if part in fixed:
            node, name = fixed[part], part
        elif part and isinstance(free, dict):
            node, name = free, _chosen(part, here, path)
        else:
            hint = nearest(part, list(fixed)) or f"known here: {', '.join(fixed) or 'nothing'}"
            raise notation.Bad(f"there is no setting {'.'.join((*path, part))!r}", hint)
        path.append(name)
        here = here.get(name, {}) if isinstance(here, dict) else {}
    return tuple(path)


def _chosen(part: str, here: Mapping[str, Any], path: list[str]) -> str:
    same = (name for name in here if name.lower().replace("-", "_") == part.replace("-", "_"))
    if path == ["gates"]:
        part = part.replace("after_", "after-", 1)
    return next(same, part)


def _nested(path: Keys, value: object) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value if isinstance(value, dict) else {}
