"""A person stops a pipeline: guardian, runners and sessions end, what is done stays done, and `launch` goes on later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from doflow.flow.dot import parser as reading
from doflow.flow.dot.model import ACTIVE, CODERGEN
from doflow.supervise import workspace as places
from doflow.supervise.guardian.state import Say
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError

MARK = "stop.json"
GRACE = 5.0


def stop(place: Place, say: Say) -> int:
    """End every layer from above, so that nobody starts again what was ended; how many processes and sessions it were."""
    if not place.dot:
        raise UsageError(f"there is no pipeline {place.pipeline!r}", "name its file: doflow guardian stop NAME.dot")
    places.prepare(place.root)
    places.save(os.path.join(place.folder, MARK), {"at": places.now(), "by": os.getpid()})
    ended = _end(os.path.join(place.folder, "guardian.lock"), "guardian", say)
    nodes = [node for node in reading.read(place.dot).nodes if node.handler == CODERGEN]
    for node in nodes:
        ended += _end(place.node(node.id, "runner.lock"), f"runner of {node.id}", say)
    for session in place.tmux.sessions() if os.path.isdir(place.folder) else ():
        place.tmux.kill(session)
        say(f"ended: session {session}")
        ended += 1
    place.tmux.leave()
    for node in nodes:
        if node.status == ACTIVE:
            _anew(place, node.id)
    place.note("terminal", "stopped", ended=ended)
    return ended


def stopped(place: Place) -> bool:
    return os.path.exists(os.path.join(place.folder, MARK))


def forget(place: Place) -> None:
    """Somebody goes on with it."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(place.folder, MARK))


def _end(lock: str, words: str, say: Say) -> int:
    pid = places.holder(lock)
    if pid <= 0:
        return 0
    until = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while places.holder(lock) == pid and time.monotonic() < until:
            time.sleep(0.02)
        if places.holder(lock) == pid:
            os.kill(pid, signal.SIGKILL)
    say(f"ended: {words} (pid {pid})")
    return 1


def _anew(place: Place, node: str) -> None:
    """Its session is gone through no fault of its own: the next attempt is no retry. Work that is done is still reviewed."""
    path = place.node(node, "node.json")
    record = places.load(path)
    attempt = int(record.get("attempt", 0))
    if attempt and not place.store.replied(f"review.{node}.{attempt}", "NEEDS_REVIEW"):
        places.save(path, {**record, "attempt": attempt + 1, "base": attempt, "fresh": True})
