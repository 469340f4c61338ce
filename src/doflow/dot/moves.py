"""Moving a node from one status to the next, in the DOT file itself: allowed or refused with words, durable, one at a time.

Under a lock on the file: line in `<dot>.transitions.jsonl` → the DOT file (status, fill colour) → `<dot>.checkpoint.json`.
A crash between two of them is made good by the next one who takes the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doflow import files, ledger
from doflow.dot import checkpoint, editing, graph, reading
from doflow.dot.model import ACTIVE, COLOURS, CONDITION, EXIT, FAILED, MOVES, PENDING, STATUSES, Node, Pipeline
from doflow.errors import DoflowError, LockHeld

PATIENCE = 20.0


class Refused(DoflowError):
    """A transition that the table does not allow, or that comes from another status than was expected."""


def transition(
    path: str | os.PathLike[str], node: str, status: str, *, expect: str = "", by: str = "", note: str = ""
) -> Pipeline:
    """Give `node` this status, and say so in the log; returns the pipeline as it stands then.

    A node that has the status already is left alone, so a repeated deed does no harm; who must be the one that moves it
    (to claim a node) says what it `expect`s, and is refused if another was first. `by`: who; `note`: why.
    """
    with locked(path) as text:
        pipeline = _mended(text, str(path))
        found = editing.the(pipeline, node)
        if expect and found.status != expect:
            raise Refused(f"{path}: {node} is {found.status}, not {expect}: it was moved by another", _look(path))
        if found.status == status and not expect:
            return pipeline
        _allowed(pipeline, found, status)
        return _move(pipeline, found, status, by, note, {})


def requeue(path: str | os.PathLike[str], diamond: str, *, by: str = "", note: str = "") -> Pipeline:
    """Take the retry edge of a failed diamond: all that lies between its target and itself becomes pending again.

    The diamond counts it (`retry_count`); after `max_retries` (3) it is refused, and the diamond stays failed.
    """
    with locked(path) as text:
        pipeline = _mended(text, str(path))
        found = editing.the(pipeline, diamond)
        names = graph.body(pipeline, diamond)
        if not names:
            raise Refused(f"{path}: {diamond} has no retry edge", "a diamond leads back by an edge with condition=fail")
        if found.status != FAILED:
            raise Refused(f"{path}: {diamond} is {found.status}: only what failed is sent back", _look(path))
        used, most = graph.retries(found), graph.max_retries(pipeline, found)
        if used >= most:
            hint = f"mend it by hand, or raise max_retries: doflow dot node modify {path} {diamond} --set max_retries=…"
            raise Refused(f"{path}: {diamond} has sent the work back {used} times, and no more is allowed", hint)
        for name in names:
            one = editing.the(pipeline, name)
            more = {"retry_count": str(used + 1)} if name == diamond else {}
            if one.status != PENDING or more:
                pipeline = _move(pipeline, one, PENDING, by, note or f"retry {used + 1} of {most}", more)
        return pipeline


def restart(path: str | os.PathLike[str], *, by: str = "", note: str = "") -> Pipeline:
    """All nodes pending, nothing sent back yet: the pipeline begins anew."""
    with locked(path) as text:
        pipeline = _mended(text, str(path))
        for node in pipeline.nodes:
            more = {"retry_count": "0"} if graph.retries(node) else {}
            if node.status != PENDING or more:
                pipeline = _move(pipeline, editing.the(pipeline, node.id), PENDING, by, note or "restart", more)
        return pipeline


def change(path: str | os.PathLike[str], how: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """Edit the file under its lock: `how` is given the pipeline and returns it changed."""
    with locked(path) as text:
        before = _mended(text, str(path))
        after = how(before)
        if after.text != before.text:
            _write(after)
        return after


def settled(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline, with whatever a killed writer left unfinished made good first."""
    with locked(path) as text:
        return _mended(text, str(path))


def log(path: str | os.PathLike[str]) -> str:
    """Where the transitions of a pipeline are recorded, one JSON object per line."""
    return f"{os.fspath(path)}.transitions.jsonl"


@contextmanager
def locked(path: str | os.PathLike[str], patience: float = PATIENCE) -> Iterator[str]:
    """The only writer of this file meanwhile; gives its text. The lock is on the file, and follows it when it is replaced."""
    fd = _lock(os.path.realpath(path), patience)
    try:
        with open(fd, encoding="utf-8", newline="", closefd=False) as file:
            text = file.read()
        yield text
    finally:
        os.close(fd)


def _lock(path: str, patience: float) -> int:
    end = time.monotonic() + patience
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise files.broke("read", path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass  # it is being replaced: the next round finds the new one
        except OSError as error:
            if time.monotonic() > end:
                os.close(fd)
                raise LockHeld(f"another program is changing {path}", "wait for it, then try again") from error
            time.sleep(0.005)
        os.close(fd)


def _allowed(pipeline: Pipeline, node: Node, status: str) -> None:
    if status not in STATUSES:
        raise Refused(f"{pipeline.path}: {status!r} is no status of a node", f"statuses: {', '.join(STATUSES)}")
    allowed = MOVES.get(node.status, ())
    if status not in allowed:
        last = node.handler == CONDITION and node.status == FAILED
        hint = f"from {node.status} it may become: {', '.join(allowed)}" if allowed else f"{node.status} is final"
        hint = "a failed diamond sends the work back by its retry edge, or is tried again (active)" if last else hint
        raise Refused(f"{pipeline.path}: {node.id} is {node.status} and cannot become {status}", hint)
    open_ = graph.unvalidated_gates(pipeline) if node.handler == EXIT and status == ACTIVE else ()
    if open_:
        message = f"{pipeline.path}: {node.id} cannot begin: these gates are not validated: {', '.join(open_)}"
        raise Refused(message, "the exit opens when every gate is validated")


def _move(pipeline: Pipeline, node: Node, status: str, by: str, note: str, more: Mapping[str, str]) -> Pipeline:
    """Log, file, checkpoint, in this order."""
    values = {"status": status, "fillcolor": COLOURS[status], **_filled(node), **more}
    after = editing.set_(pipeline, node.id, values)
    entry = {
        "at": ledger.now(), "pipeline": pipeline.name, "node": node.id, "from": node.status, "to": status,
        "by": by or f"pid {os.getpid()}", "note": note, "set": values,
        "before": digest(pipeline.text), "after": digest(after.text),
    }  # fmt: skip
    files.append(log(pipeline.path), ledger.line(entry))
    _write(after)
    return after


def _filled(node: Node) -> dict[str, str]:
    style = node.get("style")
    return {} if "filled" in style else {"style": f"{style},filled" if style else "filled"}


def _write(pipeline: Pipeline) -> None:
    real = os.path.realpath(pipeline.path)
    files.write(real, pipeline.text.encode("utf-8"), os.stat(real).st_mode & 0o777)
    checkpoint.write(pipeline, digest(pipeline.text))


def _mended(text: str, path: str) -> Pipeline:
    """The pipeline; a transition that was logged and then interrupted is carried through first."""
    pipeline = reading.parse(text, path)
    entry, now = _last(path), digest(text)
    if entry is None or checkpoint.known(path) == entry["after"]:
        return pipeline
    if entry["before"] == now:
        after = editing.set_(pipeline, entry["node"], entry["set"])
        if digest(after.text) == entry["after"]:
            _write(after)
            return after
    elif entry["after"] == now:
        checkpoint.write(pipeline, now)
    return pipeline


def _last(path: str) -> dict[str, Any] | None:
    """The last whole line of the log."""
    try:
        with open(log(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 16)))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        return entry if {"before", "after", "node", "set"} <= entry.keys() else None
    return None


def digest(text: str) -> str:
    """16 hex signs that stand for a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _look(path: str | os.PathLike[str]) -> str:
    return f"look at it with: doflow dot status {Path(path)}"
