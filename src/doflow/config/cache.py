"""Frozen types into plain data that marshal can keep, and back: how the cache holds flows, plans and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Types into data that marshal can keep: a type of ours becomes (its name, its values)."""
    names = getattr(type(value), "__light__", ())
    if names:
        usual = type(value).__defaults__
        said = [(name, found) for name in names if (found := getattr(value, name)) is not usual.get(name, value)]
        return {"": type(value).__name__, **{name: plain(found) for name, found in said}}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Mapping):
        return {"": "dict", "items": {name: plain(item) for name, item in value.items()}}
    return value


def typed(value: Any, types: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(typed(item, types) for item in value)
    if isinstance(value, dict):
        kind = value[""]
        if kind == "dict":
            return {name: typed(item, types) for name, item in value["items"].items()}
        return types[kind](**{name: typed(item, types) for name, item in value.items() if name})
    return value


def bare(value: Any) -> Any:
    """Named tuples into plain ones."""
    if isinstance(value, tuple):
        return tuple(bare(item) for item in value)
    if isinstance(value, Mapping):
        return {name: bare(item) for name, item in value.items()}
    return value
