"""DOT text → Pipeline: nodes with their defaults, edges one by one, each with its position in the text.

The grammar is Graphviz's: chains, groups in braces, ports, subgraphs with defaults of their own, several attribute lists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from doflow.flow.dot.model import Attribute, Edge, Node, Pipeline, Statement
from doflow.util.errors import FlowError, Problem, WorldError


def read_pipeline(path: str | os.PathLike[str], shown: str = "") -> Pipeline:
    """The pipeline of a file; `FlowError` with line and column if it isn't DOT. `shown`: its name in messages."""
    name = shown or os.fspath(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return parse_pipeline(file.read(), name)
    except UnicodeDecodeError as error:
        raise FlowError((Problem(name, 0, 0, f"not UTF-8: {error.reason}", "save the file as UTF-8"),)) from error
    except OSError as error:
        raise WorldError(f"cannot read {name}: {error.strerror or error}", f"check it: ls -l '{name}'") from error


def parse_pipeline(text: str, path: str = "pipeline.dot") -> Pipeline:
    """The pipeline of a text."""
    return _Reader(text, path).pipeline()


class _Scope:
    """The scope of one pair of braces: its defaults, and all nodes mentioned in it."""

    __slots__ = ("edge", "group", "members", "node", "top")

    def __init__(self, group: str, node: Mapping[str, str], edge: Mapping[str, str], top: bool = False) -> None:
        self.group = group
        self.top = top
        self.node = dict(node)
        self.edge = dict(edge)
        self.members: dict[str, None] = {}


class _Found:
    """A node while the file is parsed."""

    __slots__ = ("group", "line", "own", "statements", "values")

    def __init__(self, line: int, group: str, defaults: Mapping[str, str]) -> None:
        self.line = line
        self.group = group
        self.values = dict(defaults)
        self.own: list[Attribute] = []
        self.statements: list[Statement] = []


class _Reader:
    """Walks the tokens once."""

    def __init__(self, text: str, path: str) -> None:
        self._text, self._path = text, path
        self._tokens = scan(text, path)
        self._place = 0
        self._nodes: dict[str, _Found] = {}
        self._edges: list[Edge] = []
        self._graph: list[Attribute] = []

    def pipeline(self) -> Pipeline:
        if self._peek().value == "strict":
            self._take()
        head = self._take()
        if head.kind != "keyword" or head.value not in ("digraph", "graph"):
            raise self._wrong(head, "a pipeline begins with `digraph NAME {`")
        name = self._take().value if self._peek().kind == "id" else ""
        begin = self._expect("{").end
        top = _Scope("", {}, {}, top=True)
        self._statements(top)
        close = self._expect("}")
        if self._peek().kind != "end":
            raise self._wrong(self._peek(), "something stands after the last `}`")
        attributes = {one.name: one.value for one in self._graph}
        return Pipeline(
            self._path, self._text, name, tuple(_node(key, one) for key, one in self._nodes.items()),
            tuple(self._edges), tuple(attributes.items()), tuple(self._graph), tuple(top.node.items()),
            head.value == "digraph", head.line, begin, close.start,
        )  # fmt: skip

    def _statements(self, scope: _Scope) -> None:
        while self._peek().kind not in ("}", "end"):
            if self._peek().kind in (";", ","):
                self._take()
            else:
                self._statement(scope)

    def _statement(self, scope: _Scope) -> None:
        token = self._peek()
        if token.kind == "keyword" and token.value in ("node", "edge", "graph"):
            self._take()
            _, given = self._lists()
            if token.value == "graph":
                self._graph += given if scope.top else ()
            else:
                defaults = scope.node if token.value == "node" else scope.edge
                defaults.update((one.name, one.value) for one in given)
            return
        if token.kind == "id" and self._peek(1).kind == "=":
            given_one = self._attribute()
            self._graph += [given_one] if scope.top else ()
            return
        self._chain(scope)

    def _chain(self, scope: _Scope) -> None:
        """A node, a group, or several of them connected by arrows; then attribute lists."""
        first = self._peek()
        ends = [self._end(scope)]
        named = first.kind == "id"
        while self._peek().kind in ("->", "--"):
            self._take()
            ends.append(self._end(scope))
        last = self._tokens[self._place - 1].end
        lists, given = self._lists() if self._peek().kind == "[" else ((), ())
        statement = Statement(first.line, first.start, lists[-1][1] if lists else last, lists, tuple(given), scope.top)
        if len(ends) > 1:
            values = {**scope.edge, **{one.name: one.value for one in given}}
            for left, right in pairwise(ends):
                for start in left:
                    self._edges += [Edge(start, to, first.line, tuple(values.items()), statement) for to in right]
        elif named:
            node = self._nodes[ends[0][0]]
            node.statements.append(statement)
            node.own += given
            node.values.update((one.name, one.value) for one in given)

    def _end(self, scope: _Scope) -> tuple[str, ...]:
        """One end of an arrow: a node with its port, or all nodes of a group."""
        token = self._peek()
        if token.kind == "{" or (token.value == "subgraph" and token.kind == "keyword"):
            return self._subgraph(scope)
        if token.kind != "id":
            raise self._wrong(token, f"expected a node, an edge or an attribute, not {_shown(token)}")
        self._take()
        while self._peek().kind == ":":  # a port, a compass point: only affects drawing
            self._take()
            self._expect("id")
        self._mention(scope, token)
        return (token.value,)

    def _mention(self, scope: _Scope, token: Token) -> None:
        scope.members[token.value] = None
        if token.value not in self._nodes:
            self._nodes[token.value] = _Found(token.line, scope.group, scope.node)

    def _subgraph(self, scope: _Scope) -> tuple[str, ...]:
        name = scope.group
        if self._take().kind == "keyword":
            name = self._take().value if self._peek().kind == "id" else name
            if self._peek().kind != "{":
                raise self._wrong(self._peek(), "a subgraph is `subgraph NAME { … }`")
            self._take()
        inner = _Scope(name, scope.node, scope.edge)
        self._statements(inner)
        self._expect("}")
        scope.members.update(inner.members)
        return tuple(inner.members)

    def _lists(self) -> tuple[tuple[tuple[int, int], ...], Sequence[Attribute]]:
        """`[a=1, b=2] [c=3]`: their positions and attributes."""
        lists: list[tuple[int, int]] = []
        given: list[Attribute] = []
        while self._peek().kind == "[":
            start = self._take().start
            while self._peek().kind != "]":
                if self._peek().kind in (",", ";"):
                    self._take()
                else:
                    given.append(self._attribute())
            lists.append((start, self._take().end))
        return tuple(lists), given

    def _attribute(self) -> Attribute:
        name = self._take()
        if name.kind not in ("id", "keyword"):
            raise self._wrong(name, f"an attribute is `name=value`, not {_shown(name)}")
        if self._peek().kind != "=":
            return Attribute(name.value, "true", name.line, name.start, name.end, name.end)
        self._take()
        value = self._take()
        if value.kind not in ("id", "keyword"):
            raise self._wrong(value, f"{name.value}= has no value, but {_shown(value)}")
        return Attribute(name.value, value.value, name.line, name.start, value.start, value.end)

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._place += 1
        return token

    def _expect(self, kind: str) -> Token:
        token = self._peek()
        if token.kind != kind:
            wanted = "a name" if kind == "id" else f"`{kind}`"
            raise self._wrong(token, f"expected {wanted}, not {_shown(token)}")
        return self._take()

    def _wrong(self, token: Token, message: str) -> FlowError:
        column = token.start - (self._text.rfind("\n", 0, token.start) + 1) + 1
        hint = "`dot -Tsvg FILE` of Graphviz reads the same language"
        return FlowError((Problem(self._path, token.line, column, message, hint),))


def _node(name: str, found: _Found) -> Node:
    own, statements = tuple(found.own), tuple(found.statements)
    line = statements[0].line if statements else found.line
    return Node(name, line, tuple(found.values.items()), own, statements, found.group)


def _shown(token: Token) -> str:
    return "the end of the file" if token.kind == "end" else f"`{token.value or token.kind}`"


_SKIP = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|\A)#[^\n]*)+", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*")
_NUMBER = re.compile(r"-?(?:\.\d+|\d+(?:\.\d*)?)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\]|\r?\n)')
_KEYWORDS = frozenset({"node", "edge", "graph", "digraph", "subgraph", "strict"})


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: id, keyword (lowercase), a symbol, or end. `value`: without quotes and escapes."""

    kind: str
    value: str
    start: int
    end: int
    line: int


def scan(text: str, path: str) -> tuple[Token, ...]:
    """All tokens, the last one `end`; quoted strings joined by `+` are one."""
    return tuple(_joined(list(_tokens(text, path))))


def unquoted(written: str) -> str:
    """The value of a quoted string: `\\"` and `\\\\` are one character, a backslash continues a line."""
    return _ESCAPED.sub(lambda found: found[1] if found[1] in '"\\' else "", written[1:-1])


def quoted(value: str) -> str:
    """A value as a quoted string; the inverse of `unquoted`."""
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
            raise _wrong(path, text, place, line, "unterminated quoted string", 'close it with "')
        return Token("quoted", unquoted(found[0]), place, found.end(), line)
    if sign == "<":
        end = _html(text, place)
        if end < 0:
            raise _wrong(path, text, place, line, "unterminated HTML label", "each < needs its >")
        return Token("id", text[place:end], place, end, line)
    named = _NAME.match(text, place) or _NUMBER.match(text, place)
    if named is None:
        hint = "quote names with characters other than letters, digits and _"
        raise _wrong(path, text, place, line, f"unexpected {sign!r}", hint)
    word = named[0]
    if word.lower() in _KEYWORDS:
        return Token("keyword", word.lower(), place, named.end(), line)
    return Token("id", word, place, named.end(), line)


def _html(text: str, place: int) -> int:
    """The end of the HTML string that starts here; -1 = unterminated."""
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
