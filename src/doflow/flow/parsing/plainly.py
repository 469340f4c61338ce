"""A file that is written plainly, read without the YAML library: mappings by indentation, words, quotes, lists, block texts.

Importing the library costs as much as reading a hundred steps. What is not plain to see here (escapes, mappings behind a
dash, whatever else goes over several lines, whatever is wrong) is left to it: None is the answer then, and the library has
the last word.
"""

from __future__ import annotations

import re
from typing import Any

from doflow.flow.parsing.document import Lines, scalar
from doflow.util.records import regex

_KEY = "[A-Za-z_][A-Za-z0-9_-]{0,199}"
_LINES = regex(rf"^(?:( *)({_KEY}):(?: +([^ #\n].*))?(?: +#.*)? *|(.*))$", re.MULTILINE)
_STRANGE = regex("[\x85\u2028\u2029\ufeff]")
_END = regex(r" *(?: #.*)?")
_PLAIN = regex(r"(?!-+ |-+$)[A-Za-z0-9_./~$+=^(<;-][^#:]*")
_TOKEN = regex(
    r""" *(?:([\[\]{},])|"([^"\\]*)"|'([^']*)'|((?!-+[ ,\]}])[A-Za-z0-9_./~$+=^(<;-][^,\[\]{}:#"'?|>%@`!&*]*)(?:(:) +)?)"""
)
_WORD = "[A-Za-z_./][A-Za-z0-9_./-]*"
_ITEM = f"""(?:"[^"\\\\]+"|'[^']+'|{_WORD})"""
_TEXTS = regex(rf"\[{_ITEM}(?:, +{_ITEM})*\]")
_TEXT = regex(rf""""([^"]+)"|'([^']+)'|({_WORD})""")
_PAIR = regex(rf"""[{{ ]({_KEY}): +(?:({_WORD})|({_ITEM}|\[{_ITEM}(?:, +{_ITEM})*\]))(?:,(?= )|}}$)|(.)""")
_NAME = regex(r"[A-Za-z0-9_./~$+=^(;-][^ ]{0,199}")
_NOT_KEYS = frozenset(("true", "false", "null"))
_NOT_PAIRS = [("", "", "", "{")]
_NEW: Any = object()
_Row = tuple[str, str, str, str]


class _Odd(Exception):
    """Not plain to see."""


def read(text: str) -> tuple[dict[str, Any], Lines] | None:
    """The values, and the lines on which the keys of each mapping stand; None if a word of it is not plain."""
    if "\t" in text or "\r" in text or not (text.isascii() or _STRANGE.search(text) is None):
        return None
    try:
        return _read(_LINES.findall(text), text.split("\n") if "|" in text else [])
    except _Odd:
        return None


def _read(rows: list[_Row], whole: list[str]) -> tuple[dict[str, Any], Lines]:
    top: dict[str, Any] = {}
    lines: Lines = {id(top): (0, [])}
    open_: list[tuple[int, dict[str, Any], list[int]]] = []  # around the one that is being read
    here, mapping, places = 0, top, lines[id(top)][1]
    waiting = ""
    known: dict[str, Any] = {}  # much is said again and again
    upto = 0  # the last line that is read already
    for number, (space, name, said, other) in enumerate(rows, 1):
        if number <= upto or (not name and other.strip(" ")[:1] in ("", "#")):
            continue
        if not name:
            raise _Odd
        indent = len(space)
        if waiting:
            if indent <= here or len(open_) > 20:
                raise _Odd
            open_.append((here, mapping, places))
            below: dict[str, Any] = {}
            mapping[waiting] = below
            here, mapping, places, waiting = indent, below, [], ""
            lines[id(below)] = (indent, places)
        while here > indent:
            here, mapping, places = open_.pop()
        if here != indent or name in mapping or name in _NOT_KEYS:
            raise _Odd
        places.append(number)
        if not said:
            mapping[name], upto = _dashes(rows, number, indent, known)
            waiting = name if mapping[name] is None else ""
        elif said[0] == "|":
            mapping[name], upto = _block(said, whole, number, indent)
        elif said[0] == "{":
            mapping[name] = _pairs(said, known)
        else:
            mapping[name] = known[said] if said in known else _new(said, known)
    if waiting or not top:
        raise _Odd
    return top, lines


def _dashes(rows: list[_Row], number: int, around: int, known: dict[str, Any]) -> tuple[list[Any] | None, int]:
    """The list that begins below this line, one dash a line, and its last line; None if there is none."""
    items: list[Any] = []
    dash, last = around, number
    for at in range(number, len(rows)):
        _, name, _, other = rows[at]
        rest = other.lstrip(" ")
        if rest[:2] != "- ":
            if name or rest[:1] not in ("", "#"):
                break
            continue
        indent = len(other) - len(rest)
        if indent != dash and (items or indent < around):
            raise _Odd
        dash, last = indent, at + 1
        said = rest[2:].strip(" ")
        items.append(known[said] if said in known else _new(said, known))
    return items or None, last


def _block(said: str, whole: list[str], number: int, around: int) -> tuple[str, int]:
    """The text below this line, as far as it stands further in than what is around it, and its last line."""
    kept: list[str] = []
    indent = 0
    for at in range(number, len(whole)):
        line = whole[at]
        bare = line.lstrip(" ")
        if bare and not indent:
            indent = len(line) - len(bare)
        if line[:indent].strip(" ") or (bare and indent <= around):
            break
        kept.append(line)
    if said.rstrip(" ") != "|" or any(len(line) > indent and not line.strip(" ") for line in kept):
        raise _Odd
    while kept and not kept[-1].strip(" "):
        kept.pop()
    end = number + len(kept)
    if not kept or end == len(whole):  # nothing, or the file ends without the end of its last line
        raise _Odd
    return "".join([line[indent:] + "\n" for line in kept]), end


def _pairs(said: str, known: dict[str, Any]) -> dict[str, Any]:
    """A mapping on one line: nearly always of words and lists of words; else token by token."""
    found = _PAIR.findall(said) if "{" not in said[1:] else _NOT_PAIRS
    out: dict[str, Any] = {}
    for name, word, text, odd in found:
        if odd:
            value: dict[str, Any] = _value(said)
            return value
        what = word or text
        entry = known.get(what, _NEW)
        if entry is _NEW:
            entry = known[what] = scalar(word) if word else _texts(text) if text[0] == "[" else text[1:-1]
        out[name] = entry
    if len(out) != len(found) or not _NOT_KEYS.isdisjoint(out):
        raise _Odd
    return out


def _new(said: str, known: dict[str, Any]) -> Any:
    known[said] = found = _value(said)
    return found


def _value(said: str) -> Any:
    first = said[:1]
    if first and first in "[{\"'":
        if first == "[" and _TEXTS.fullmatch(said):  # nearly every command and every list of files
            return _texts(said)
        value, end = _inline(said, 0, 0)
        if not _END.fullmatch(said, end):
            raise _Odd
        return value
    word, _, _ = said.partition(" #")
    if not _PLAIN.fullmatch(word):
        raise _Odd
    return scalar(word.rstrip(" "))


def _texts(said: str) -> list[Any]:
    return [double or single or scalar(word) for double, single, word in _TEXT.findall(said)]


def _inline(said: str, at: int, depth: int) -> tuple[Any, int]:
    """The list, mapping or word that begins here, and where it ends."""
    sign, value, end, key = _token(said, at)
    if key or sign not in ("", "[", "{") or depth > 8:
        raise _Odd
    if sign == "[":
        return _list(said, end, depth)
    return _mapping(said, end, depth) if sign == "{" else (value, end)


def _list(said: str, at: int, depth: int) -> tuple[list[Any], int]:
    out: list[Any] = []
    while True:
        value, at = _inline(said, at, depth + 1)
        out.append(value)
        sign, _, at, _ = _token(said, at)
        if sign == "]":
            return out, at
        if sign != ",":
            raise _Odd


def _mapping(said: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    out: dict[str, Any] = {}
    while True:
        sign, name, at, key = _token(said, at)
        if sign or not key or type(name) is not str or name in out or not _NAME.fullmatch(name):
            raise _Odd
        out[name], at = _inline(said, at, depth + 1)
        sign, _, at, _ = _token(said, at)
        if sign == "}":
            return out, at
        if sign != ",":
            raise _Odd


def _token(said: str, at: int) -> tuple[str, Any, int, bool]:
    """A sign or a value, where it ends, and whether it is a key."""
    found = _TOKEN.match(said, at)
    if found is None:
        raise _Odd
    sign, double, single, word, colon = found.groups()
    if sign:
        return sign, None, found.end(), False
    if word is None:
        return "", single if double is None else double, found.end(), False
    return "", scalar(word.rstrip(" ")), found.end(), bool(colon)
