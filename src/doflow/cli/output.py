"""Printing for commands: text made safe for a terminal, tables, JSON, and the words they share.

A command module has ABOUT, EXAMPLES, `arguments(parser)` and a function with the name of the command.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from doflow.util.errors import UsageError
from doflow.util.text import clean


def say(text: str = "") -> None:
    """Print a line; control characters are escaped."""
    sys.stdout.write(clean(text) + "\n")


def warn(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(clean(text) + "\n")


def say_json(value: object) -> None:
    """Print one JSON document in ASCII, safe for any locale and terminal."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def table(rows: Iterable[Sequence[str]], indent: str = "") -> None:
    """Print columns as wide as their widest cell; the last one is not padded."""
    kept = [tuple(" ".join(cell.split()) for cell in row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*kept, strict=True)]
    for row in kept:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        say(f"{indent}{'  '.join(cells)}".rstrip())


def report(as_json: bool, value: object, text: str) -> int:
    """Print a result, as JSON or as text; returns the exit code of success."""
    if as_json:
        say_json(value)
    else:
        say(text)
    return 0


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unknown_flow(name: str, known: Collection[str], broken: Mapping[str, str]) -> UsageError:
    if name in broken:
        return UsageError(broken[name])
    near = difflib.get_close_matches(name, known, 1)
    return UsageError(f"unknown flow {name}", f"did you mean {near[0]}?" if near else f"flows: {', '.join(known)}")
