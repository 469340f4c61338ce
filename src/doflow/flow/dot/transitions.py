"""Status transitions of nodes, written to the DOT file itself: checked, durable, one at a time.

Under a lock on the file: line in `<dot>.transitions.jsonl` → the DOT file (status, fill colour) → `<dot>.checkpoint.json`.
After a crash between two of them, the next process that takes the lock completes them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doflow.flow.dot import editor, order, parser
from doflow.flow.dot.model import (
    ACTIVE,
    COLOURS,
    CONDITION,
    EXIT,
    FAILED,
    MOVES,
    PENDING,
    STATUSES,
    Node,
    Pipeline,
)
from doflow.util import atomic_files, timestamps
from doflow.util.errors import DoflowError
from doflow.util.text import json_line

Move = tuple[str, str, Mapping[str, str], str]  # node, status, more attributes, why


class Refused(DoflowError):
    """A transition that isn't allowed, or that starts from an unexpected status."""


def transition(
    path: str | os.PathLike[str], node: str, status: str, *, expect: str = "", by: str = "", note: str = ""
) -> Pipeline:
    """Give `node` this status and log it; returns the updated pipeline.

    A node that has the status already is left alone, so repeating it does no harm. To claim a node, give the status to
    `expect`: it is refused if another process was first. `by`: who; `note`: why.
    """
    with _settled(path) as (held, pipeline):
        found = editor.get_node(pipeline, node)
        if expect and found.status != expect:
            raise Refused(f"{path}: {node} is {found.status}, not {expect}: another process moved it", _advice(path))
        if found.status == status and not expect:
            return pipeline
        _allowed(pipeline, found, status)
        return _carry(held, pipeline, [(node, status, {}, note)], by)


def requeue(path: str | os.PathLike[str], diamond: str, *, by: str = "", note: str = "") -> Pipeline:
    """Take the retry edge of a failed diamond: all nodes from its target to itself become pending again.

    The diamond counts it (`retry_count`); after `max_retries` (3) it is refused, and the diamond stays failed.
    """
    with _settled(path) as (held, pipeline):
        found = editor.get_node(pipeline, diamond)
        names = order.retry_body(pipeline, diamond)
        if not names:
            hint = "a retry edge is an edge of a diamond with condition=fail"
            raise Refused(f"{path}: {diamond} has no retry edge", hint)
        if found.status != FAILED:
            message = f"{path}: {diamond} is {found.status}: only a failed diamond can be retried"
            raise Refused(message, _advice(path))
        used, most = order.retry_count(found), order.max_retries(pipeline, found)
        if used >= most:
            hint = f"fix it by hand, or raise max_retries: doflow dot node modify {path} {diamond} --set max_retries=…"
            raise Refused(f"{path}: {diamond} has used all {used} retries", hint)
        note = note or f"retry {used + 1} of {most}"
        moved = [_back(pipeline, name, used + 1 if name == diamond else 0, note) for name in names]
        return _carry(held, pipeline, moved, by)


def reset(path: str | os.PathLike[str], node: str, *, by: str = "", note: str = "") -> Pipeline:
    """Make one node pending: a person wants it done again. A diamond is retried by its edge instead."""
    with _settled(path) as (held, pipeline):
        return _carry(held, pipeline, [(node, PENDING, {}, note or "to be done again")], by)


def restart(path: str | os.PathLike[str], *, by: str = "", note: str = "") -> Pipeline:
    """Make all nodes pending and reset the retry counts."""
    with _settled(path) as (held, pipeline):
        moved = [_back(pipeline, node.id, 0, note or "restart") for node in pipeline.nodes]
        return _carry(held, pipeline, moved, by)


def follow(
    path: str | os.PathLike[str], wanted: Mapping[str, tuple[str, int]], *, by: str = "", note: str = ""
) -> Pipeline:
    """Bring nodes to the status and retry count that a run has for them, by allowed transitions.

    Where there is no allowed path (a validated node is repeated), the node becomes pending first.
    """
    with _settled(path) as (held, pipeline):
        moved: list[Move] = []
        for name, (status, count) in wanted.items():
            node = editor.get_node(pipeline, name)
            start, used = node.status, order.retry_count(node)
            if used != count:
                failed = _way(start, FAILED) if count > used and start == ACTIVE else ()
                moved += [(name, one, {}, note) for one in failed]
                moved.append((name, PENDING, {"retry_count": str(count)}, note))
                start = PENDING
            moved += [(name, one, {}, note) for one in _way(start, status)]
        return _carry(held, pipeline, moved, by)


def edit_pipeline(path: str | os.PathLike[str], how: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """Edit the file under its lock: `how` gets the pipeline and returns the changed one."""
    with _settled(path) as (held, before):
        after = how(before)
        if after.text != before.text:
            _write(held, after)
        return after


def read_settled(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline, after completing what a killed writer left unfinished."""
    with _settled(path) as (_, pipeline):
        return pipeline


@contextmanager
def _settled(path: str | os.PathLike[str]) -> Iterator[tuple[editor.LockedFile, Pipeline]]:
    with editor.lock_file(path) as held:
        yield held, _repaired(held, str(path))


def log_path(path: str | os.PathLike[str]) -> str:
    """The transition log of a pipeline, one JSON object per line."""
    return f"{os.fspath(path)}.transitions.jsonl"


def _allowed(pipeline: Pipeline, node: Node, status: str) -> None:
    if status not in STATUSES:
        raise Refused(f"{pipeline.path}: {status!r} is no status of a node", f"statuses: {', '.join(STATUSES)}")
    allowed = MOVES.get(node.status, ())
    if status not in allowed:
        last = node.handler == CONDITION and node.status == FAILED
        hint = f"from {node.status} it may become: {', '.join(allowed)}" if allowed else f"{node.status} is final"
        hint = "a failed diamond sends the work back by its retry edge, or is tried again (active)" if last else hint
        raise Refused(f"{pipeline.path}: {node.id} is {node.status} and cannot become {status}", hint)
    open_ = order.unvalidated_gates(pipeline) if node.handler == EXIT and status == ACTIVE else ()
    if open_:
        message = f"{pipeline.path}: {node.id} cannot begin: these gates are not validated: {', '.join(open_)}"
        raise Refused(message, "the exit opens when every gate is validated")


def _back(pipeline: Pipeline, name: str, count: int, note: str) -> Move:
    more = {"retry_count": str(count)} if order.retry_count(editor.get_node(pipeline, name)) != count else {}
    return name, PENDING, more, note


def _way(start: str, to: str) -> tuple[str, ...]:
    """The statuses between, and the last; the shortest way that the table has."""
    ways: list[tuple[str, ...]] = [(start,)]
    for way in ways:
        if way[-1] == to:
            return way[1:]
        ways += [(*way, one) for one in MOVES.get(way[-1], ()) if one not in way]
    return (PENDING, *_way(PENDING, to)) if to != PENDING else (PENDING,)


def _carry(held: editor.LockedFile, pipeline: Pipeline, moved: Sequence[Move], by: str) -> Pipeline:
    """Log, file, checkpoint, in this order: all of these moves, or none. What changes nothing is left out."""
    after, lines = pipeline, []
    for name, status, more, note in moved:
        node = editor.get_node(after, name)
        if node.status == status and not more:
            continue
        style = node.get("style")
        filled = {} if "filled" in style else {"style": f"{style},filled" if style else "filled"}
        values = {"status": status, "fillcolor": COLOURS[status], **filled, **more}
        after = editor.set_attributes(after, name, values)
        lines.append({"node": name, "from": node.status, "to": status, "note": note, "set": values})
    if not lines:
        return pipeline
    common = {"at": timestamps.now(), "pipeline": pipeline.name, "by": by or f"pid {os.getpid()}"}
    place = {"of": len(lines), "before": digest(pipeline.text), "after": digest(after.text)}
    atomic_files.append_to_file(
        log_path(pipeline.path), b"".join(json_line({**common, **line, **place}) for line in lines)
    )
    _write(held, after)
    return after


def _write(held: editor.LockedFile, pipeline: Pipeline) -> None:
    held.replace(pipeline.text)
    _write_checkpoint(pipeline)


def _repaired(held: editor.LockedFile, path: str) -> Pipeline:
    """The pipeline; a transition that was logged and then interrupted is carried through first."""
    pipeline = parser.parse_pipeline(held.text, path)
    entries, now = _last(path), digest(held.text)
    if not entries or _checkpoint_digest(path) == entries[-1]["after"]:
        return pipeline
    if entries[-1]["before"] == now and len(entries) < entries[-1].get("of", 1):
        _take_back(path, entries, now)
    elif entries[-1]["before"] == now:
        after = pipeline
        for entry in entries:
            after = editor.set_attributes(after, entry["node"], entry["set"])
        if digest(after.text) == entries[-1]["after"]:
            _write(held, after)
            return after
    elif entries[-1]["after"] == now:
        _write_checkpoint(pipeline)
    return pipeline


def _take_back(path: str, entries: Sequence[Mapping[str, Any]], now: str) -> None:
    """The writer was killed while it wrote what belongs together: the log says that none of it happened."""
    lines = [
        {**entry, "at": timestamps.now(), "from": entry["to"], "to": entry["from"], "set": {}, "before": now, "after": now,
         "note": "not done: its writer was killed", "of": 1}
        for entry in reversed(entries)
    ]  # fmt: skip
    atomic_files.append_to_file(log_path(path), b"".join(json_line(line) for line in lines))


def _last(path: str) -> list[dict[str, Any]]:
    """The last whole lines of the log that belong together."""
    try:
        with open(log_path(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 18)))
            lines = file.read().splitlines()
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or not {"before", "after", "node", "set"} <= entry.keys():
            break
        if found and [entry["before"], entry["after"]] != [found[0]["before"], found[0]["after"]]:
            break
        found.insert(0, entry)
    return found


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _advice(path: str | os.PathLike[str]) -> str:
    return f"look at it with: doflow dot status {Path(path)}"


def checkpoint_path(path: str | os.PathLike[str]) -> str:
    """The checkpoint file of a pipeline."""
    return f"{os.fspath(path)}.checkpoint.json"


def _write_checkpoint(pipeline: Pipeline) -> None:
    """Atomic, durable write of the pipeline as JSON; the caller holds the lock of the DOT file."""
    values = {
        "version": "1.0.0",
        "created_at": timestamps.now(),
        "source_file": os.path.basename(pipeline.path),
        "graph_name": pipeline.name,
        "graph_attrs": dict(pipeline.attributes),
        "defaults": dict(pipeline.defaults),
        "nodes": [node.to_dict() for node in pipeline.nodes],
        "edges": [edge.to_dict() for edge in pipeline.edges],
        "content_hash": digest(pipeline.text),
    }
    words = json.dumps(values, ensure_ascii=False, indent=2) + "\n"
    atomic_files.write_file(checkpoint_path(pipeline.path), words.encode("utf-8"), alone=True)


def _checkpoint_digest(path: str) -> str:
    """The `content_hash` of the checkpoint; '' = missing or unreadable."""
    try:
        with open(checkpoint_path(path), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return ""
    return str(found.get("content_hash", "")) if isinstance(found, dict) else ""
