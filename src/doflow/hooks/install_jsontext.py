"""Small changes of a JSON text that leave every other byte as it is, and can be taken back exactly. Pure.

A piece is put right behind the bracket that opens its container: on a line of its own, or on the same line where the
container was empty. So what stands behind the bracket tells, when the piece is taken out again, whether the container was
somebody's own empty one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from doflow.util.records import dataclass

Path = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Part:
    """One member of an object or one item of a list: where it begins (its key, if it has one), its value, its end."""

    key: str | int
    start: int
    value: int
    end: int


def parts(text: str, at: int) -> list[Part]:
    """What a container that opens at `at` holds; nothing for a value that is none. The text is valid JSON."""
    found: list[Part] = []
    if text[at] not in "{[":
        return found
    place = _blank(text, at + 1)
    while text[place] not in "}]":
        start, key = place, len(found) if text[at] == "[" else ""
        if text[at] == "{":
            key, place = json.decoder.scanstring(text, place + 1)  # type: ignore[attr-defined]
            place = _blank(text, _blank(text, place) + 1)
        _, end = json.JSONDecoder().raw_decode(text, place)
        found.append(Part(key, start, place, end))
        place = _blank(text, end)
        if text[place] == ",":
            place = _blank(text, place + 1)
    return found


def find(text: str, path: Path) -> int | None:
    """Where the value at a path begins; None = there is none."""
    at = _blank(text, 0)
    for key in path:
        part = next((part for part in parts(text, at) if part.key == key), None)
        if part is None:
            return None
        at = part.value
    return at


def put(text: str, path: Path, key: str, value: Any) -> str:
    """A new first member (`key`) or item of the container at `path`, which is there."""
    at = find(text, path)
    assert at is not None
    rest, newline = parts(text, at), _newline(text)
    indent = _indent(text)
    piece = newline.join(json.dumps(value, indent=indent).split("\n"))
    piece = piece.replace(newline, newline + indent * (len(path) + 1))
    piece = f"{json.dumps(key)}: {piece}" if text[at] == "{" else piece
    before = newline + indent * (len(path) + 1) if rest else " "
    return text[: at + 1] + before + piece + ("," if rest else "") + text[at + 1 :]


def take(text: str, path: Path) -> str:
    """Without the member or item at `path`, and without what was put there with it; '' = nothing of ours or theirs is left."""
    at = find(text, path[:-1])
    assert at is not None
    held = parts(text, at)
    place = next(number for number, part in enumerate(held) if part.key == path[-1])
    if len(held) == 1 and text[at + 1] in "\r\n":
        return take(text, path[:-1]) if len(path) > 1 else ""
    if len(held) == 1:
        start, end = at + 1, held[0].end
    elif place == 0:
        start, end = at + 1, text.index(",", held[0].end) + 1
    else:
        start, end = held[place - 1].end, held[place].end
    return text[:start] + text[end:]


def whole(value: Any) -> str:
    """A text of its own."""
    return json.dumps(value, indent=2) + "\n"


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str) -> str:
    """As the first member of the text is indented; two blanks where that cannot be seen."""
    at = _blank(text, 0)
    held = parts(text, at)
    before = text[at + 1 : held[0].start] if held else ""
    return before.rpartition("\n")[2] if "\n" in before and before.rpartition("\n")[2] else "  "
