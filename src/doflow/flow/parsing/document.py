"""A parsed YAML file: its values, and the line and column of each of them.

Nothing here imports the YAML library; nodes come from `yaml_reader`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from doflow.flow.model import Origin
from doflow.util.errors import FlowError, Problem

LIMIT = 1_000_000
DEPTH = 30

Path = tuple[str | int, ...]

_INVISIBLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_VISIBLE_ASCII = frozenset(map(chr, (9, 10, 13, *range(0x20, 0x7F))))
_TAB = re.compile(r"^\t[ \t]*\S", re.MULTILINE)
TYPED_STARTS = frozenset("-0123456789tfn~")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True, slots=True)
class Doc:
    """A file as plain values, and the YAML nodes they were read from, which know their positions."""

    file: str
    value: dict[str, Any]
    root: Any

    def where(self, path: Path, key: bool = False) -> tuple[int, int]:
        """Line and column of the value at `path`, or of the nearest one around it."""
        node = mark = self.root
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            mark, node = found
        return position(mark if key else node)

    def line(self, path: Path) -> int:
        """The line of the key at `path`."""
        return self.where(path, key=True)[0]

    def problem(self, path: Path, message: str, hint: str = "", key: bool = False) -> Problem:
        return Problem(self.file, *self.where(path, key), message, hint)

    def item(self, path: Path, text: str) -> Path:
        """The path of the list entry equal to `text`, or of the list itself if there is none."""
        value = self._value(path)
        return (*path, value.index(text)) if isinstance(value, list) and text in value else path

    def origins(self, path: Path) -> dict[str, Origin]:
        """The position of each key of the mapping at `path`."""
        return {key.value: Origin(self.file, *position(key)) for key, _ in self._node(path).value}

    def _value(self, path: Path) -> Any:
        value: Any = self.value
        for part in path:
            if isinstance(value, dict):
                value = value.get(str(part))
            else:
                value = value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
        return value

    def _node(self, path: Path) -> Any:
        node = self.root
        for part in path:
            found = _child(node, part)
            if found is None:
                return None
            node = found[1]
        return node


def _child(node: Any, part: str | int) -> tuple[Any, Any] | None:
    entries = getattr(node, "value", None)
    if not isinstance(entries, list):
        return None
    if isinstance(part, int):
        return (entries[part], entries[part]) if part < len(entries) else None
    pairs = (entry for entry in entries if isinstance(entry, tuple))
    return next(((key, value) for key, value in pairs if key.value == part), None)


def position(node: Any) -> tuple[int, int]:
    """Line and column of a node."""
    mark = getattr(node, "start_mark", None)
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def parse_scalar(text: str) -> object:
    """The value of an unquoted scalar: true, false, null or a number; anything else is text (`on`, `012`, `12:30`)."""
    if text and text[0] not in TYPED_STARTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    digits = text[1:] if text[0] == "-" else text
    whole, dot, rest = digits.partition(".")
    if not _is_number(whole) or (dot and not _is_digits(rest)):
        return text
    return float(text) if dot else int(text)


def _is_number(text: str) -> bool:
    return _is_digits(text) and (text[0] != "0" or text == "0")


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def read_text(path: str, name: str = "") -> str:
    """The text of a small regular file; a pipe, a folder, a huge or non-UTF-8 file is an error, never a hang."""
    name = name or path
    try:
        raw = _bytes(path, name)
    except OSError as error:
        why = error.strerror or str(error)
        raise _refusal(name, f"cannot be read: {why}", "check that the file exists and is readable") from error
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        hint = "save the file as UTF-8"
        raise FlowError((Problem(name, line, column, f"byte {raw[error.start]:#04x} is not UTF-8", hint),)) from error


def _bytes(path: str, name: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _refusal(name, "is not a regular file", "use a plain text file")
        raw = b"".join(_chunks(handle))
    finally:
        os.close(handle)
    if len(raw) > LIMIT:
        raise too_large(name)
    return raw


def _chunks(handle: int) -> Iterator[bytes]:
    left = LIMIT + 1
    while left > 0 and (chunk := os.read(handle, left)):
        left -= len(chunk)
        yield chunk


def too_large(name: str) -> FlowError:
    return _refusal(name, f"is larger than {LIMIT:,} bytes", "keep flows short: move long texts into prompt files")


def _refusal(name: str, message: str, hint: str) -> FlowError:
    return FlowError((Problem(name, 1, 1, message, hint),))


def refuse_odd_text(text: str, name: str) -> None:
    """Refuse what the parser should not see: a huge text, invisible characters, tabs as indentation."""
    if len(text) > LIMIT:
        raise too_large(name)
    if not text.isascii() or not (text.replace("\n", "").isprintable() or _VISIBLE_ASCII.issuperset(text)):
        _refuse_invisible(text, name)
    tab = _TAB.search(text) if "\t" in text else None
    if tab:
        raise FlowError((Problem(name, *_spot(text, tab.start()), "tab used for indentation", "indent with spaces"),))


def _refuse_invisible(text: str, name: str) -> None:
    odd = _INVISIBLE.search(text)
    if odd:
        message = f"the character U+{ord(odd[0]):04X} is not allowed"
        raise FlowError((Problem(name, *_spot(text, odd.start()), message, "remove it; it is invisible"),))


def _spot(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def nearest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """`did you mean …?` if a known word is close, else ''."""
    close = get_close_matches(word, known, 1, cutoff)
    return f"did you mean {close[0]!r}?" if close else ""
