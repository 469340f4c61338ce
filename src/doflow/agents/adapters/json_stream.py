"""Reading what a CLI wrote: one JSON record per line, from a log of any size, however torn.

A record counts when its line begins with it and it is whole. Nothing is looked for inside a line: a torn line may hold words
that the model chose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from doflow.util.process.command import Result

Record = dict[str, Any]
Records = Iterable[Record]

LONGEST = 8_000_000
MOST = 4_000_000
#: where the tools of the CLIs say what they are about
_ABOUT = ("file_path", "filePath", "notebook_path", "path", "command", "url")


def records(result: Result, text: Callable[[], str], kinds: Iterable[str]) -> Iterator[Record]:
    """The whole records of the log, in order; lines that name none of the `kinds` are passed over unread."""
    import json

    decoder, marks = json.JSONDecoder(), tuple(f'"{kind}"'.encode() for kind in kinds)
    for line in _lines(result.out, text):
        if line.startswith(b"{") and any(mark in line for mark in marks):
            yield from _decoded(decoder.raw_decode, line.decode("utf-8", "replace"))


def record(value: Any, *path: str) -> Record:
    """What stands at a path, if it is a record; else an empty one."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[Record]:
    """The records of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def words(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """A number that counts something; 0 when it is none."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0


def deed(tool: Any, given: Any) -> str:
    """A tool and what it was to be done to, in a few words: `Write notes/a.md`, `bash rm -r build`."""
    inputs = record(given)
    about = next((said for name in _ABOUT if (said := words(inputs.get(name)))), "")
    return f"{words(tool) or 'a tool'} {' '.join(about.split())[:120]}".strip()


def price(value: Any) -> float | None:
    """A price in dollars; None when nobody said one, and 0 says none."""
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e9 else None


class Said:
    """What an agent says piece by piece, from some moment on; of more than any answer has, the end."""

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
    """Line by line; one that is longer than any answer is left out whole."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; only its opening may fail quietly
    except OSError:
        yield from _told(text)
        return
    with file:
        while line := file.readline(LONGEST):
            if len(line) < LONGEST or line.endswith(b"\n"):
                yield line.strip()
                continue
            while (line := file.readline(LONGEST)) and not line.endswith(b"\n"):
                pass


def _told(text: Callable[[], str]) -> list[bytes]:
    """Where there is no log there may still be its text."""
    try:
        return [line.strip() for line in text().encode("utf-8", "replace").split(b"\n")]
    except OSError:
        return []
