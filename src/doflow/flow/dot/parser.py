"""DOT text → Pipeline: nodes with their defaults, edges one by one, each with the place where it is written.

The grammar is Graphviz's: chains, groups in braces, ports, subgraphs with defaults of their own, several lists.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise

from doflow.flow.dot.model import Attribute, Edge, Node, Pipeline, Statement
from doflow.flow.dot.scanner import Token, scan
from doflow.util.errors import FlowError, Problem, WorldError


def read(path: str | os.PathLike[str], shown: str = "") -> Pipeline:
    """The pipeline of a file; a file that is no DOT raises `FlowError` with line and column. `shown`: its name in words."""
    name = shown or os.fspath(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return parse(file.read(), name)
    except UnicodeDecodeError as error:
        raise FlowError((Problem(name, 0, 0, f"not UTF-8: {error.reason}", "save the file as UTF-8"),)) from error
    except OSError as error:
        raise WorldError(f"cannot read {name}: {error.strerror or error}", f"look at it: ls -l '{name}'") from error


def parse(text: str, path: str = "pipeline.dot") -> Pipeline:
    """The pipeline of a text."""
    return _Reader(text, path).pipeline()


class _Scope:
    """What holds inside one pair of braces: the defaults, and all nodes mentioned there."""

    __slots__ = ("edge", "group", "members", "node", "top")

    def __init__(self, group: str, node: Mapping[str, str], edge: Mapping[str, str], top: bool = False) -> None:
        self.group = group
        self.top = top
        self.node = dict(node)
        self.edge = dict(edge)
        self.members: dict[str, None] = {}


class _Found:
    """A node while the file is read."""

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
        """A node, a group, or several of them joined by arrows; then lists of attributes."""
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
            raise self._wrong(token, f"a node, an edge or an attribute must stand here, not {_shown(token)}")
        self._take()
        while self._peek().kind == ":":  # a port, a compass point: where the arrow is drawn, nothing more
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
        """`[a=1, b=2] [c=3]`: where each stands, and what they say."""
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
            raise self._wrong(value, f"{name.value}= has no value: {_shown(value)} stands there")
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
            raise self._wrong(token, f"{wanted} must stand here, not {_shown(token)}")
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
