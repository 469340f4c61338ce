"""JSON stream: read one JSON record per line from a CLI's log of any size.

A record counts only if it is complete and starts its line: a partial line may contain text chosen by the model.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from doflow.util.process.runner import Result

Record = dict[str, Any]
Records = Iterable[Record]

LONGEST = 8_000_000
MOST = 4_000_000
#: input fields that describe a tool call
_ABOUT = ("file_path", "filePath", "notebook_path", "path", "command", "url")


def records(result: Result, text: Callable[[], str], kinds: Iterable[str]) -> Iterator[Record]:
    """The complete records of the log, in order; lines without any of the `kinds` are skipped unparsed."""
    decoder, marks = json.JSONDecoder(), tuple(f'"{kind}"'.encode() for kind in kinds)
    for line in _lines(result.out, text):
        if line.startswith(b"{") and any(mark in line for mark in marks):
            yield from _decoded(decoder.raw_decode, line.decode("utf-8", "replace"))


def nested_record(value: Any, *path: str) -> Record:
    """The record at a path of keys; empty if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def record_list(value: Any) -> list[Record]:
    """The records of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_value(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count_value(value: Any) -> int:
    """A non-negative number as an int; 0 for anything else."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0


def describe_tool_use(tool: Any, given: Any) -> str:
    """A tool call in short: `Write notes/a.md`, `bash rm -r build`."""
    inputs = nested_record(given)
    about = next((said for name in _ABOUT if (said := text_value(inputs.get(name)))), "")
    return f"{text_value(tool) or 'a tool'} {' '.join(about.split())[:120]}".strip()


def price_value(value: Any) -> float | None:
    """A price in dollars; None when it is missing or 0."""
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e9 else None


class TextBuffer:
    """Text collected piece by piece; only the end of very long text is kept."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        while self._size - len(self._parts[0]) > MOST:
            self._size -= len(self._parts.popleft())

    def clear(self) -> None:
        self._parts.clear()
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)


def _decoded(decode: Callable[[str, int], tuple[Any, int]], line: str) -> Iterator[Record]:
    """The records at the beginning of a line: mostly one, more when a line end was lost."""
    at = 0
    while line.startswith("{", at):
        try:
            value, at = decode(line, at)
        except (ValueError, RecursionError):
            return
        yield value


def _lines(path: str, text: Callable[[], str]) -> Iterator[bytes]:
    """The lines of a log, or of `text` if there is none; overlong lines are skipped."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; only its opening may fail quietly
    except OSError:
        with suppress(OSError):
            yield from map(bytes.strip, text().encode("utf-8", "replace").split(b"\n"))
        return
    with file:
        while line := file.readline(LONGEST):
            if len(line) < LONGEST or line.endswith(b"\n"):
                yield line.strip()
                continue
            while (line := file.readline(LONGEST)) and not line.endswith(b"\n"):
                pass
