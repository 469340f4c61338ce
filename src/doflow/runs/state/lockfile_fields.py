"""Plain values of a file, held to their types: what is not of its type raises ValueError, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any


def text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"`{name}` is no text")
    return str(value or "")


def texts(values: Mapping[str, Any], title: str) -> dict[str, str]:
    found = table(values, title)
    return {name: text(found, name) for name in found}


def table(values: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    found = values.get(title)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"`{title}` is no mapping")
    return found


def rows(
    values: Mapping[str, Any], title: str, needed: str, known: Collection[str], maps: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table: each has this field, each known field is a text, or among `maps` a mapping to texts."""
    found = table(values, title)
    for name in found:
        row = dict(table(found, name))
        if needed not in row:
            raise ValueError(f"{title}: {name} has no `{needed}`")
        for field, value in row.items():
            if field in maps:
                texts(row, field)
            elif field not in known and not maps:
                raise ValueError(f"{title}: {name}: `{field}` is not known here: upgrade doflow")
            elif field in known and not isinstance(value, str):
                raise ValueError(f"{title}: {name}: `{field}` is no text")
        yield name, row
