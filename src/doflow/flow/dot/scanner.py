"""DOT text → tokens with their places. Comments and white space are passed over, and so stay where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doflow.util.errors import FlowError, Problem
from doflow.util.records import dataclass, regex

_SKIP = regex(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|\A)#[^\n]*)+", re.DOTALL)
_NAME = regex(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*")
_NUMBER = regex(r"-?(?:\.\d+|\d+(?:\.\d*)?)")
_QUOTED = regex(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPED = regex(r'\\(["\\]|\r?\n)')
_KEYWORDS = frozenset({"node", "edge", "graph", "digraph", "subgraph", "strict"})


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: id, keyword (in small letters), a sign, or end. `value`: what it means, without quotes and escapes."""

    kind: str
    value: str
    start: int
    end: int
    line: int


def scan(text: str, path: str) -> tuple[Token, ...]:
    """All tokens, the last one `end`; quoted strings joined by `+` are one."""
    return tuple(_joined(list(_tokens(text, path))))


def unquoted(written: str) -> str:
    """What a quoted string means: `\\"` and `\\\\` are one sign, a backslash ends a line that goes on."""
    return _ESCAPED.sub(lambda found: found[1] if found[1] in '"\\' else "", written[1:-1])


def quoted(value: str) -> str:
    """A value as a quoted string; what `unquoted` makes of it is the value again."""
    parts = []
    for place, sign in enumerate(value):
        after = value[place + 1 : place + 2]
        if sign == '"' or (sign == "\\" and (after in ("", '"', "\\", "\n") or value[place + 1 : place + 3] == "\r\n")):
            parts.append("\\")
        parts.append(sign)
    return f'"{"".join(parts)}"'


def _tokens(text: str, path: str) -> Iterator[Token]:
    place, line, counted = 0, 1, 0
    while True:
        skipped = _SKIP.match(text, place)
        place = skipped.end() if skipped else place
        line, counted = line + text.count("\n", counted, place), place
        if place >= len(text):
            yield Token("end", "", place, place, line)
            return
        token = _token(text, place, line, path)
        yield token
        place = token.end


def _token(text: str, place: int, line: int, path: str) -> Token:
    sign = text[place]
    if text[place : place + 2] in ("->", "--"):
        return Token(text[place : place + 2], "", place, place + 2, line)
    if sign in "{}[]=;,:+":
        return Token(sign, "", place, place + 1, line)
    if sign == '"':
        found = _QUOTED.match(text, place)
        if found is None:
            raise _wrong(path, text, place, line, "a quoted string that does not end", 'close it with "')
        return Token("quoted", unquoted(found[0]), place, found.end(), line)
    if sign == "<":
        end = _html(text, place)
        if end < 0:
            raise _wrong(path, text, place, line, "an HTML label that does not end", "each < needs its >")
        return Token("id", text[place:end], place, end, line)
    named = _NAME.match(text, place) or _NUMBER.match(text, place)
    if named is None:
        hint = "names with other signs than letters, digits and _ are written in quotes"
        raise _wrong(path, text, place, line, f"unexpected {sign!r}", hint)
    word = named[0]
    if word.lower() in _KEYWORDS:
        return Token("keyword", word.lower(), place, named.end(), line)
    return Token("id", word, place, named.end(), line)


def _html(text: str, place: int) -> int:
    """Where the HTML string that begins here ends; -1 = nowhere."""
    depth = 0
    for at in range(place, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if depth == 0:
            return at + 1
    return -1


def _joined(tokens: list[Token]) -> Iterator[Token]:
    place = 0
    while place < len(tokens):
        token = tokens[place]
        while token.kind == "quoted" and [one.kind for one in tokens[place + 1 : place + 3]] == ["+", "quoted"]:
            more = tokens[place + 2]
            token = Token("quoted", token.value + more.value, token.start, more.end, token.line)
            place += 2
        yield token if token.kind != "quoted" else Token("id", token.value, token.start, token.end, token.line)
        place += 1


def _wrong(path: str, text: str, place: int, line: int, message: str, hint: str) -> FlowError:
    column = place - (text.rfind("\n", 0, place) + 1) + 1
    return FlowError((Problem(path, line, column, message, hint),))
