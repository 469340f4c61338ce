"""Layers of settings: defaults, file, environment, flags; and the origin of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from doflow.flow.parsing import document, loader, schema, syntax
from doflow.flow.parsing.document import Doc, nearest
from doflow.util.errors import FlowError, Problem

if TYPE_CHECKING:
    from doflow.flow.parsing.schema import SchemaViolation

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
    "workspace": "auto",
    "phases": {"max_tasks": 15},
    "test_command": "",
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


class LayeredSettings:
    """The merged values of all layers, and the origin of each."""

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

    def origin(self, path: Keys) -> str:
        """Where a value comes from, with the line if it is the file."""
        where = self.where.get(path, "default")
        return f"{FILE}:{self.doc.where(path, key=True)[0]}" if where == FILE and self.doc else where

    def problem(self, path: Keys, message: str, hint: str, key: bool = False, item: str = "") -> Problem:
        """At the value, at its key, or at the one item of a list."""
        where = next((who for leaf, who in self.where.items() if leaf[: len(path)] == path and who != "default"), FILE)
        if where == FILE and self.doc:
            return self.doc.problem(self.doc.item(path, item) if item else path, message, hint, key)
        return Problem(where, 1, 1, message, hint)


def from_environment(layers: LayeredSettings, name: str, text: str) -> list[Problem]:
    parts = name.removeprefix(PREFIX).lower().split("__")
    try:
        path = _setting_path(parts, layers)
    except syntax.InvalidSyntax as bad:
        return [Problem(name, 1, 1, bad.message, bad.hint)]
    faults: tuple[SchemaViolation, ...] = ()
    for value in _possible_values(text, name):
        layer = _nested(path, value)
        found = schema.faults(layer, "doflow")
        if not found:
            layers.add(layer, name)
            return []
        faults = faults or found
    return [Problem(name, 1, 1, fault.message, fault.hint) for fault in faults]


def _possible_values(text: str, name: str) -> Iterator[object]:
    """The possible values of a variable: parsed as YAML, else the text itself."""
    if not text:
        yield from ("", None)
    elif text.replace("_", "").replace("-", "").replace(".", "").isalnum():
        yield document.parse_scalar(text)
    else:
        with suppress(FlowError):
            yield loader.parse_yaml(text, name)
    yield text


def from_flag(layers: LayeredSettings, name: str, value: object) -> list[Problem]:
    shown = "--" + name.replace("_", "-")
    try:
        path = _setting_path(name.split("."), layers)
    except syntax.InvalidSyntax as bad:
        return [Problem(shown, 1, 1, bad.message, bad.hint)]
    layer = _nested(path, list(value) if isinstance(value, tuple) else value)
    found = schema.faults(layer, "doflow")
    if not found:
        layers.add(layer, shown)
    return [Problem(shown, 1, 1, fault.message, fault.hint) for fault in found]


def _setting_path(parts: list[str], layers: LayeredSettings) -> Keys:
    """The path of a setting; names chosen by the user match with - or _."""
    tree = schema.load_schema("doflow")
    node, here = tree, layers.value
    path: list[str] = []
    for part in parts:
        if "$ref" in node:
            node = tree["$defs"][node["$ref"].removeprefix("#/$defs/")]
        fixed, free = node.get("properties", {}), node.get("additionalProperties")
        if part in fixed:
            node, name = fixed[part], part
        elif part and isinstance(free, dict):
            node, name = free, _matching_name(part, here, path)
        else:
            hint = nearest(part, list(fixed)) or f"known here: {', '.join(fixed) or 'nothing'}"
            raise syntax.InvalidSyntax(f"unknown setting {'.'.join((*path, part))!r}", hint)
        path.append(name)
        here = here.get(name, {}) if isinstance(here, dict) else {}
    return tuple(path)


def _matching_name(part: str, here: Mapping[str, Any], path: list[str]) -> str:
    same = (name for name in here if name.lower().replace("-", "_") == part.replace("-", "_"))
    return next(same, part.replace("after_", "after-", 1) if path == ["gates"] else part)


def _nested(path: Keys, value: object) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value if isinstance(value, dict) else {}
