"""DOT text → Pipeline: nodes with their defaults, edges one by one, each with its position in the text.

The grammar is Graphviz's: chains, groups in braces, ports, subgraphs with defaults of their own, several attribute lists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from doflow.flow.dot import dialect
from doflow.flow.dot.model import EXIT, START, Attribute, Edge, Node, Pipeline, Statement
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
    return _Reader(text, path).pipeline()


@dataclass(slots=True)
class _Scope:
    """The scope of one pair of braces: its defaults, and all nodes mentioned in it."""

    group: str = ""
    node: dict[str, str] = field(default_factory=dict)
    edge: dict[str, str] = field(default_factory=dict)
    top: bool = False
    members: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Found:
    """A node while the file is parsed."""

    line: int
    group: str
    values: dict[str, str]
    own: list[Attribute] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def node(self, name: str) -> Node:
        own, statements = tuple(self.own), tuple(self.statements)
        line = statements[0].line if statements else self.line
        return Node(name, line, tuple(self.values.items()), own, statements, self.group)


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
        self._expect("{")
        top = _Scope(top=True)
        self._statements(top)
        close = self._expect("}")
        if self._peek().kind != "end":
            raise self._wrong(self._peek(), "something stands after the last `}`")
        attributes = {one.name: one.value for one in self._graph}
        return dialect.normalize(Pipeline(
            self._path, self._text, name, _with_ends([one.node(key) for key, one in self._nodes.items()]),
            tuple(self._edges), tuple(attributes.items()), tuple(top.node.items()),
            head.value == "digraph", head.line, close.start,
        ))  # fmt: skip

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
        elif token.kind == "id" and self._peek(1).kind == "=":
            given_one = self._attribute()
            self._graph += [given_one] if scope.top else ()
        else:
            self._chain(scope)

    def _chain(self, scope: _Scope) -> None:
        """A node, a group, or several of them connected by arrows; then attribute lists."""
        first = self._peek()
        ends = [self._end(scope)]
        while self._peek().kind in ("->", "--"):
            self._take()
            ends.append(self._end(scope))
        last = self._tokens[self._place - 1].end
        lists, given = self._lists()
        statement = Statement(first.line, first.start, lists[-1][1] if lists else last, lists, tuple(given), scope.top)
        if len(ends) > 1:
            values = {**scope.edge, **{one.name: one.value for one in given}}
            pairs = [(start, to) for left, right in pairwise(ends) for start in left for to in right]
            self._edges += [Edge(start, to, first.line, tuple(values.items()), statement) for start, to in pairs]
        elif first.kind == "id":
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
        scope.members[token.value] = None
        self._nodes.setdefault(token.value, _Found(token.line, scope.group, dict(scope.node)))
        return (token.value,)

    def _subgraph(self, scope: _Scope) -> tuple[str, ...]:
        name = scope.group
        if self._take().kind == "keyword":
            name = self._take().value if self._peek().kind == "id" else name
            if self._peek().kind != "{":
                raise self._wrong(self._peek(), "a subgraph is `subgraph NAME { … }`")
            self._take()
        inner = _Scope(name, dict(scope.node), dict(scope.edge))
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
        end = value.end
        if self._text[value.start] not in '"<':  # `900s`, `gpt-5.4`: Graphviz wants quotes, other tools take them bare
            while self._peek().start == end and self._peek().kind in ("id", "keyword", "-") and self._bare():
                end = self._take().end
        words = value.value if end == value.end else self._text[value.start : end]
        return Attribute(name.value, words, name.line, name.start, value.start, end)

    def _bare(self) -> bool:
        return self._text[self._peek().start] not in '"<'

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
        hint = "`dot -Tsvg FILE` of Graphviz reads the same language"
        return _error(self._path, self._text, token.start, token.line, message, hint)


def _with_ends(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes; where no shape or handler makes a start or an exit, the node of that name is it."""
    found = list(nodes)
    for role, names in ((START, ("start",)), (EXIT, ("exit", "end"))):
        named = [node for node in found if node.id.lower() in names]
        if len(named) == 1 and not any(node.handler == role for node in found):
            found[found.index(named[0])] = replace(named[0], role=role)
    return tuple(found)


def _shown(token: Token) -> str:
    return "the end of the file" if token.kind == "end" else f"`{token.value or token.kind}`"


_SKIP = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/|(?<!\S)#[^\n]*)+", re.DOTALL)
_TOKEN = re.compile(
    r'(?P<sign>->|--|[{}\[\]=;,:+]|(?<=\w)-(?=[A-Za-z]))|(?P<quoted>"(?:[^"\\]|\\.)*")'
    r"|(?P<id>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|-?(?:\.\d+|\d+(?:\.\d*)?))",
    re.DOTALL,
)
_ESCAPED = re.compile(r'\\(["\\]|\r?\n)')
KEYWORDS = frozenset({"node", "edge", "graph", "digraph", "subgraph", "strict"})


class Token(NamedTuple):
    """`kind`: id, keyword (lowercase), a symbol, or end. `value`: without quotes and escapes."""

    kind: str
    value: str
    start: int
    end: int
    line: int


def scan(text: str, path: str) -> tuple[Token, ...]:
    """All tokens, the last one `end`; quoted strings joined by `+` are one."""
    tokens: list[Token] = []
    place, line, counted = 0, 1, 0
    while not tokens or tokens[-1].kind != "end":
        skipped = _SKIP.match(text, place)
        place = skipped.end() if skipped else place
        line, counted = line + text.count("\n", counted, place), place
        token = _token(text, place, line, path)
        place = token.end
        if token.kind == "quoted" and [one.kind for one in tokens[-2:]] == ["quoted", "+"]:
            first = tokens[-2]
            tokens[-2:] = [first._replace(value=first.value + token.value, end=token.end)]
        else:
            tokens.append(token)
    return tuple(token._replace(kind="id") if token.kind == "quoted" else token for token in tokens)


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


def _token(text: str, place: int, line: int, path: str) -> Token:
    if place >= len(text):
        return Token("end", "", place, place, line)
    if text[place] == "<":
        return _html(text, place, line, path)
    found = _TOKEN.match(text, place)
    if found is None:
        if text[place] == '"':
            raise _error(path, text, place, line, "unterminated quoted string", 'close it with "')
        hint = "quote names with characters other than letters, digits and _"
        raise _error(path, text, place, line, f"unexpected {text[place]!r}", hint)
    kind, value = str(found.lastgroup), found[0]
    if kind == "sign":
        kind, value = value, ""
    elif kind == "quoted":
        value = unquoted(value)
    elif value.lower() in KEYWORDS:
        kind, value = "keyword", value.lower()
    return Token(kind, value, place, found.end(), line)


def _html(text: str, place: int, line: int, path: str) -> Token:
    depth = 0
    for at in range(place, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if depth == 0:
            return Token("id", text[place : at + 1], place, at + 1, line)
    raise _error(path, text, place, line, "unterminated HTML label", "each < needs its >")


def _error(path: str, text: str, place: int, line: int, message: str, hint: str) -> FlowError:
    column = place - text.rfind("\n", 0, place)
    return FlowError((Problem(path, line, column, message, hint),))
