"""Who works on a DOT file: one run of `doit`, or a guardian with its runners; never both, however either of them ends.

A lock per file, which lasts as long as the work: a run holds it alone, guardian and runners hold it together. So a runner that
has lost its guardian still keeps a run away.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from doflow.runs.state import event_log as ledger
from doflow.supervise import workspace as places
from doflow.util import atomic_files as files
from doflow.util.errors import LockHeld

FOLDER = os.path.join(".doflow", "drivers")


def alone(root: str, dot: str, command: str) -> int:
    """Take the file for a run, for as long as this process lives; the descriptor that holds it."""
    return _take(root, dot, command, fcntl.LOCK_EX)


@contextmanager
def together(root: str, dot: str, command: str = "") -> Iterator[None]:
    """Take the file as a guardian, or as one of its runners (without `command`); a tool without a file takes nothing."""
    fd = _take(root, dot, command, fcntl.LOCK_SH) if dot else -1
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _take(root: str, dot: str, command: str, how: int) -> int:
    places.prepare(root)
    path = _path(root, dot)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise _refusal(root, dot) from error
    if command:
        words = {"pid": os.getpid(), "since": ledger.now(), "command": command}
        files.write(f"{path}.json", (json.dumps(words) + "\n").encode(), sync=False)
    return fd


def _refusal(root: str, dot: str) -> LockHeld:
    """Who it is, and what to type."""
    shown = os.path.relpath(dot)
    said = places.load(f"{_path(root, dot)}.json")
    pid, command = said.get("pid"), str(said.get("command", ""))
    who = f"`{command}` (pid {pid}, since {said.get('since')})"
    if not command.startswith("doflow guardian"):
        return LockHeld(f"{shown} is worked on by {who}", f"wait for it, or stop it (^C, kill {pid}), then run again")
    look = f"see how far it is: doflow dot status {shown}"
    if _alive(pid):
        return LockHeld(
            f"{shown} is worked on by {who}",
            f"{look}; wait for it, or stop it: doflow guardian stop {shown}   then run again",
        )
    names = ", ".join(f"{node} (pid {runner})" for node, runner in runners(root, dot)) or "a runner"
    return LockHeld(
        f"{shown}: its guardian has ended, and these are still at work: {names}",
        f"{look}; go on with them: doflow guardian launch {shown}   or end them: doflow guardian stop {shown}",
    )


def runners(root: str, dot: str) -> list[tuple[str, int]]:
    """The runners of this file that are at work: node, pid."""
    found = []
    base = os.path.join(root, places.FOLDER)
    with suppress(OSError):
        for name in sorted(os.listdir(base)):
            if places.load(os.path.join(base, name, "pipeline.json")).get("dot") != os.path.realpath(dot):
                continue
            for node in sorted(os.listdir(os.path.join(base, name, "nodes"))):
                pid = places.holder(os.path.join(base, name, "nodes", node, "runner.lock"))
                found += [(node, pid)] if pid else []
    return found


def _path(root: str, dot: str) -> str:
    return os.path.join(root, FOLDER, f"{hashlib.sha256(os.fsencode(os.path.realpath(dot))).hexdigest()[:16]}.lock")


def _alive(pid: object) -> bool:
    from doflow.supervise import daemon as detach

    return isinstance(pid, int) and detach.alive(pid)
