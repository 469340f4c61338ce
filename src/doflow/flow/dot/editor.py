"""Edit a DOT text in place: one value, node or edge; comments and layout are kept. And the file under its lock."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from doflow.flow.dot import parser
from doflow.flow.dot.model import Attribute, Edge, Node, Pipeline, Statement
from doflow.flow.dot.parser import KEYWORDS, quoted
from doflow.util import atomic_files, locks
from doflow.util.errors import LockHeld, UsageError

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|-?(?:\.\d+|\d+(?:\.\d*)?)")


def write_id(name: str) -> str:
    """A name in DOT syntax: bare where allowed, else quoted."""
    return name if _is_bare(name) else quoted(name)


def _is_bare(text: str) -> bool:
    return bool(_BARE.fullmatch(text)) and text.lower() not in KEYWORDS


def set_attributes(pipeline: Pipeline, name: str, values: Mapping[str, str]) -> Pipeline:
    """The pipeline with these attributes of a node; an existing one is changed in place."""
    for key, value in values.items():
        node = get_node(pipeline, name)
        own = [one for one in node.own if one.name == key]
        pipeline = _change(pipeline, own[-1], value) if own else _append(pipeline, node, key, value)
    return pipeline


def unset_attributes(pipeline: Pipeline, name: str, keys: Iterable[str]) -> Pipeline:
    """The pipeline without these attributes of a node; a default may then apply again."""
    for key in keys:
        while own := [one for one in get_node(pipeline, name).own if one.name == key]:
            start, end = _with_separator(pipeline.text, own[-1])
            pipeline = _spliced(pipeline, start, end, "")
    return pipeline


def add_node(pipeline: Pipeline, name: str, values: Mapping[str, str]) -> Pipeline:
    """The pipeline with one more node, written before the first edge's line, else at the end."""
    if any(node.id == name and node.statements for node in pipeline.nodes):
        hint = f"change it with: doflow dot node modify {pipeline.path} {name} --set key=value"
        raise UsageError(f"{pipeline.path}: node {name} already exists", hint)
    listed = "".join(f"        {write_id(key)}={quoted(value)}\n" for key, value in values.items())
    words = f"    {write_id(name)} [\n{listed}    ];\n" if listed else f"    {write_id(name)};\n"
    return _line(pipeline, _insertion_point(pipeline), words)


def add_edge(pipeline: Pipeline, start: str, to: str, values: Mapping[str, str]) -> Pipeline:
    """The pipeline with one more edge, written at the end."""
    get_node(pipeline, start), get_node(pipeline, to)
    if any((edge.start, edge.to) == (start, to) for edge in pipeline.edges):
        raise UsageError(f"{pipeline.path}: there is an edge {start} -> {to} already")
    listed = ", ".join(f"{write_id(key)}={quoted(value)}" for key, value in values.items())
    words = f"    {write_id(start)} -> {write_id(to)}{f' [{listed}]' if listed else ''};\n"
    return _line(pipeline, pipeline.end, words)


def remove_node(pipeline: Pipeline, name: str) -> Pipeline:
    """The pipeline without a node and without the edges that touch it; a chain keeps its other links."""
    while (node := pipeline.node(name)) is not None:
        touching = [edge for edge in pipeline.edges if name in (edge.start, edge.to)]
        if touching:
            pipeline = _without(pipeline, touching[0].statement, lambda edge: name not in (edge.start, edge.to))
        elif node.statements:
            pipeline = _cut(pipeline, node.statements[-1])
        else:
            raise UsageError(f"{pipeline.path}: {name} cannot be taken out", "take it out by hand")
    return pipeline


def remove_edge(pipeline: Pipeline, start: str, to: str) -> Pipeline:
    """The pipeline without an edge."""
    found = next((edge for edge in pipeline.edges if (edge.start, edge.to) == (start, to)), None)
    if found is None:
        raise UsageError(f"{pipeline.path}: there is no edge {start} -> {to}")
    return _without(pipeline, found.statement, lambda edge: (edge.start, edge.to) != (start, to))


def get_node(pipeline: Pipeline, name: str) -> Node:
    """The node of this name, or words that say which there are."""
    node = pipeline.node(name)
    if node is None:
        known = ", ".join(node.id for node in pipeline.nodes) or "none"
        raise UsageError(f"{pipeline.path}: there is no node {name}", f"nodes: {known}")
    return node


def _change(pipeline: Pipeline, one: Attribute, value: str) -> Pipeline:
    if one.at == one.end:  # a bare name, which stands for true
        return _insert(pipeline, one.end, f"={quoted(value)}")
    old = pipeline.text[one.at : one.end]
    bare = old[:1] not in '"<' and _is_bare(value)
    html = value.startswith("<") and value.endswith(">") and old[:1] == "<"
    return _spliced(pipeline, one.at, one.end, value if bare or html else quoted(value))


def _append(pipeline: Pipeline, node: Node, key: str, value: str) -> Pipeline:
    """One more attribute in the node's own list, laid out as the others are."""
    text, words = pipeline.text, f"{write_id(key)}={quoted(value)}"
    listed = next((one for one in node.statements if one.lists), None)
    if listed is None:
        if node.statements:
            return _insert(pipeline, node.statements[0].end, f" [{words}]")
        return _line(pipeline, _insertion_point(pipeline), f"    {write_id(node.id)} [{words}];\n")
    start, end = listed.lists[-1]
    inside = [one for one in listed.attributes if start < one.start < end]
    if not inside:
        return _insert(pipeline, end - 1, words)
    last = inside[-1]
    comma = "," if "," in text[last.end : end] or (len(inside) > 1 and "," in text[inside[-2].end : last.start]) else ""
    if "\n" not in text[start : last.start]:
        return _insert(pipeline, last.end, f"{comma or ','} {words}")
    ending = "\r\n" if "\r\n" in text[start:end] else "\n"
    return _insert(pipeline, last.end, f"{comma}{ending}{_indent(text, last.start)}{words}")


def _without(pipeline: Pipeline, statement: Statement, keep: Callable[[Edge], bool]) -> Pipeline:
    """A statement of edges, of which some stay: those are then written one by one."""
    edges = [edge for edge in pipeline.edges if edge.statement == statement]
    stay = [edge for edge in edges if keep(edge)]
    for node in pipeline.nodes:
        if any(one.lists and statement.start <= one.start < statement.end for one in node.statements):
            message = f"{pipeline.path}:{statement.line}: {node.id} is defined inside an edge statement"
            raise UsageError(message, "define it on a line of its own, then try again")
    if not stay:
        return _cut(pipeline, statement)
    text = pipeline.text
    lists = "".join(f" {text[start:end]}" for start, end in statement.lists)
    links = [f"{write_id(edge.start)} -> {write_id(edge.to)}{lists}" for edge in stay]
    joint = f";\n{_indent(text, statement.start)}"
    return _spliced(pipeline, statement.start, statement.end, joint.join(links))


def _cut(pipeline: Pipeline, statement: Statement) -> Pipeline:
    """Remove a statement, and its line if nothing else is on it."""
    text, start, end = pipeline.text, statement.start, statement.end
    while end < len(text) and text[end] in " \t;":
        end += 1
    line = _line_start(text, start)
    ending = next((one for one in ("\r\n", "\n") if text.startswith(one, end)), "")
    if not text[line:start].strip() and (ending or end == len(text)):
        start, end = line, end + len(ending)
    return _spliced(pipeline, start, end, "")


def _with_separator(text: str, one: Attribute) -> tuple[int, int]:
    """The attribute with the comma after it, else the one before, and the white space between."""
    end = one.end
    while text[end] in " \t":
        end += 1
    if text[end] in ",;":
        end += 1
        while text[end] in " \t":
            end += 1
        if text[end] not in "\r\n":
            return one.start, end
    else:
        end = one.end
    start = one.start
    while text[start - 1] in " \t\r\n":
        start -= 1
    if text[start - 1] in ",;" and end == one.end:
        start -= 1
    return start, end


def _insertion_point(pipeline: Pipeline) -> int:
    """Where to insert a new node: before the first edge after all nodes, else at the end."""
    last = max((one.end for node in pipeline.nodes for one in node.statements), default=0)
    links = (edge.statement for edge in pipeline.edges if edge.statement.top)
    return min((link.start for link in links if link.start > last), default=pipeline.end)


def _line(pipeline: Pipeline, place: int, words: str) -> Pipeline:
    """Insert whole lines before the line of `place`, or before `place` itself if other text precedes it."""
    start = _line_start(pipeline.text, place)
    if pipeline.text[start:place].strip():
        return _insert(pipeline, place, f"\n{words}")
    return _insert(pipeline, start, words)


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _indent(text: str, place: int) -> str:
    """The white space before `place`, if nothing else is on its line, else the usual one."""
    before = text[_line_start(text, place) : place]
    return "    " if before.strip() else before


def _insert(pipeline: Pipeline, place: int, words: str) -> Pipeline:
    return _spliced(pipeline, place, place, words)


def _spliced(pipeline: Pipeline, start: int, end: int, words: str) -> Pipeline:
    return parser.parse_pipeline(pipeline.text[:start] + words + pipeline.text[end:], pipeline.path)


class LockedFile:
    """A DOT file under its lock: its `text`, and replacing it."""

    __slots__ = ("_fds", "_path", "text")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fds = [fd]
        with open(fd, encoding="utf-8", newline="", closefd=False) as file:
            self.text = file.read()

    def replace(self, text: str) -> None:
        """Atomic, durable write of this text; the new file is locked, too."""
        try:
            mode = os.stat(self._path).st_mode & 0o777
        except OSError as error:
            raise atomic_files.io_error("write", self._path, error) from error
        atomic_files.write_file(self._path, text.encode("utf-8"), mode, alone=True, opened=self._lock)
        self.text = text

    def _lock(self, fd: int) -> None:
        locks.acquire_waiting(fd)
        self._fds.append(os.dup(fd))

    def release(self) -> None:
        for fd in self._fds:
            os.close(fd)


@contextmanager
def lock_file(path: str | os.PathLike[str], patience: float = 20.0) -> Iterator[LockedFile]:
    """Lock the file for the block; LockHeld after `patience` seconds."""
    real = os.path.realpath(path)
    held = LockedFile(real, _lock(real, patience))
    try:
        yield held
    finally:
        held.release()


def _lock(path: str, patience: float) -> int:
    end = time.monotonic() + patience
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise atomic_files.io_error("read", path, error) from error
        if locks.acquire(fd):
            if locks.is_current(fd, path):
                return fd  # else it was replaced: the next round finds the new one
        elif time.monotonic() > end:
            os.close(fd)
            raise LockHeld(f"another program is changing {path}", "wait for it, then try again")
        else:
            time.sleep(0.005)
        os.close(fd)
