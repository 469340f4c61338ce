"""Moving a node from one status to the next, in the DOT file itself: allowed or refused with words, durable, one at a time.

Under a lock on the file: line in `<dot>.transitions.jsonl` → the DOT file (status, fill colour) → `<dot>.checkpoint.json`.
A crash between two of them is made good by the next one who takes the lock.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from doflow.flow.dot import checkpoint, editor as editing, locked_file as hold, order as graph, parser as reading
from doflow.flow.dot.locked_file import Held
from doflow.flow.dot.model import ACTIVE, COLOURS, CONDITION, EXIT, FAILED, MOVES, PENDING, STATUSES, Node, Pipeline
from doflow.util import atomic_files as files, timestamps
from doflow.util.errors import DoflowError

Move = tuple[str, str, Mapping[str, str], str]  # node, status, more attributes, why


class Refused(DoflowError):
    """A transition that the table does not allow, or that comes from another status than was expected."""


def transition(
    path: str | os.PathLike[str], node: str, status: str, *, expect: str = "", by: str = "", note: str = ""
) -> Pipeline:
    """Give `node` this status, and say so in the log; returns the pipeline as it stands then.

    A node that has the status already is left alone, so a repeated deed does no harm; who must be the one that moves it
    (to claim a node) says what it `expect`s, and is refused if another was first. `by`: who; `note`: why.
    """
    with hold.hold(path) as held:
        pipeline = _mended(held, str(path))
        found = editing.the(pipeline, node)
        if expect and found.status != expect:
            raise Refused(f"{path}: {node} is {found.status}, not {expect}: it was moved by another", _look(path))
        if found.status == status and not expect:
            return pipeline
        _allowed(pipeline, found, status)
        return _carry(held, pipeline, [(node, status, {}, note)], by)


def requeue(path: str | os.PathLike[str], diamond: str, *, by: str = "", note: str = "") -> Pipeline:
    """Take the retry edge of a failed diamond: all that lies between its target and itself becomes pending again.

    The diamond counts it (`retry_count`); after `max_retries` (3) it is refused, and the diamond stays failed.
    """
    with hold.hold(path) as held:
        pipeline = _mended(held, str(path))
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
        note = note or f"retry {used + 1} of {most}"
        return _carry(
            held, pipeline, [_back(pipeline, name, used + 1 if name == diamond else 0, note) for name in names], by
        )


def restart(path: str | os.PathLike[str], *, by: str = "", note: str = "") -> Pipeline:
    """All nodes pending, nothing sent back yet: the pipeline begins anew."""
    with hold.hold(path) as held:
        pipeline = _mended(held, str(path))
        moved = [_back(pipeline, node.id, 0, note or "restart") for node in pipeline.nodes]
        return _carry(held, pipeline, moved, by)


def follow(
    path: str | os.PathLike[str], wanted: Mapping[str, tuple[str, int]], *, by: str = "", note: str = ""
) -> Pipeline:
    """Bring nodes to the status and the count of retries that a run has for them, each by the moves of the table.

    Where the table knows no way (what was validated is done again) the node becomes pending first.
    """
    with hold.hold(path) as held:
        pipeline = _mended(held, str(path))
        moved: list[Move] = []
        for name, (status, count) in wanted.items():
            node = editing.the(pipeline, name)
            if graph.retries(node) != count:
                failed = _way(node.status, FAILED) if count > graph.retries(node) and node.status == ACTIVE else ()
                moved += [(name, one, {}, note) for one in failed]
                moved.append((name, PENDING, {"retry_count": str(count)}, note))
                moved += [(name, one, {}, note) for one in _way(PENDING, status)]
            else:
                moved += [(name, one, {}, note) for one in _way(node.status, status)]
        return _carry(held, pipeline, moved, by)


def change(path: str | os.PathLike[str], how: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """Edit the file under its lock: `how` is given the pipeline and returns it changed."""
    with hold.hold(path) as held:
        before = _mended(held, str(path))
        after = how(before)
        if after.text != before.text:
            _write(held, after)
        return after


def settled(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline, with whatever a killed writer left unfinished made good first."""
    with hold.hold(path) as held:
        return _mended(held, str(path))


def log(path: str | os.PathLike[str]) -> str:
    """Where the transitions of a pipeline are recorded, one JSON object per line."""
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
    open_ = graph.unvalidated_gates(pipeline) if node.handler == EXIT and status == ACTIVE else ()
    if open_:
        message = f"{pipeline.path}: {node.id} cannot begin: these gates are not validated: {', '.join(open_)}"
        raise Refused(message, "the exit opens when every gate is validated")


def _back(pipeline: Pipeline, name: str, count: int, note: str) -> Move:
    more = {"retry_count": str(count)} if graph.retries(editing.the(pipeline, name)) != count else {}
    return name, PENDING, more, note


def _way(start: str, to: str) -> tuple[str, ...]:
    """The statuses between, and the last; the shortest way that the table has."""
    ways: list[tuple[str, ...]] = [(start,)]
    for way in ways:
        if way[-1] == to:
            return way[1:]
        ways += [(*way, one) for one in MOVES.get(way[-1], ()) if one not in way]
    return (PENDING, *_way(PENDING, to)) if to != PENDING else (PENDING,)


def _carry(held: Held, pipeline: Pipeline, moved: Sequence[Move], by: str) -> Pipeline:
    """Log, file, checkpoint, in this order: all of these moves, or none. What changes nothing is left out."""
    after, lines = pipeline, []
    for name, status, more, note in moved:
        node = editing.the(after, name)
        if node.status == status and not more:
            continue
        values = {"status": status, "fillcolor": COLOURS[status], **_filled(node), **more}
        after = editing.set_(after, name, values)
        lines.append({"node": name, "from": node.status, "to": status, "note": note, "set": values})
    if not lines:
        return pipeline
    common = {"at": timestamps.now(), "pipeline": pipeline.name, "by": by or f"pid {os.getpid()}"}
    place = {"of": len(lines), "before": digest(pipeline.text), "after": digest(after.text)}
    files.append(log(pipeline.path), b"".join(timestamps.line({**common, **line, **place}) for line in lines))
    _write(held, after)
    return after


def _filled(node: Node) -> dict[str, str]:
    style = node.get("style")
    return {} if "filled" in style else {"style": f"{style},filled" if style else "filled"}


def _write(held: Held, pipeline: Pipeline) -> None:
    held.replace(pipeline.text)
    checkpoint.write(pipeline, digest(pipeline.text))


def _mended(held: Held, path: str) -> Pipeline:
    """The pipeline; a transition that was logged and then interrupted is carried through first."""
    pipeline = reading.parse(held.text, path)
    entries, now = _last(path), digest(held.text)
    if not entries or checkpoint.known(path) == entries[-1]["after"]:
        return pipeline
    if entries[-1]["before"] == now and len(entries) < entries[-1].get("of", 1):
        _take_back(path, entries, now)
    elif entries[-1]["before"] == now:
        after = pipeline
        for entry in entries:
            after = editing.set_(after, entry["node"], entry["set"])
        if digest(after.text) == entries[-1]["after"]:
            _write(held, after)
            return after
    elif entries[-1]["after"] == now:
        checkpoint.write(pipeline, now)
    return pipeline


def _take_back(path: str, entries: Sequence[Mapping[str, Any]], now: str) -> None:
    """The writer was killed while it wrote what belongs together: the log says that none of it happened."""
    lines = [
        {**entry, "at": timestamps.now(), "from": entry["to"], "to": entry["from"], "set": {}, "before": now, "after": now,
         "note": "not done: its writer was killed", "of": 1}
        for entry in reversed(entries)
    ]  # fmt: skip
    files.append(log(path), b"".join(timestamps.line(line) for line in lines))


def _last(path: str) -> list[dict[str, Any]]:
    """The last whole lines of the log that belong together."""
    try:
        with open(log(path), "rb") as file:
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
    """16 hex signs that stand for a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _look(path: str | os.PathLike[str]) -> str:
    return f"look at it with: doflow dot status {Path(path)}"
