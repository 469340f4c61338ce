"""Refuses a run started from inside a run, before anything is written: an agent must not start the run it is part of.

The environment variable gives a helpful message; the run lock is what enforces it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from doflow.config import uptodate_stamp
from doflow.runs import mutex
from doflow.util.errors import DoflowError

VARIABLE = "PRP_PIPELINE_RUNNING"
FLAG = "SKIP_BUG_FINDING"
BUGFIX = "bugfix"
_FOLDER = "--feature-dir"


class NestedExecutionError(DoflowError):
    """The refusal; its text is a contract."""


def validate_nested_execution(session_path: str, environ: Mapping[str, str] | None = None) -> None:
    """Raise unless this process may run; only a bug-fix session below `plan/` may start inside another run."""
    given = os.environ if environ is None else environ
    running = given.get(VARIABLE, "")
    if not running or running == str(os.getpid()):
        return
    if given.get(FLAG) == "true" and BUGFIX in _below_plan(session_path):
        return
    if _dead(running) and not _locked(session_path):
        sys.stderr.write(f"warning: {VARIABLE} names process {running}, which has ended; continuing\n")
        return
    raise NestedExecutionError(
        f"Nested PRP Pipeline execution detected. Only bug fix sessions can recurse. PID: {running}"
    )


def session_path(words: Sequence[str], root: str) -> str:
    """The session folder given on the command line, '' if none."""
    for place, word in enumerate(words):
        if word == _FOLDER and place + 1 < len(words):
            return os.path.join(root, words[place + 1])
        if word.startswith(f"{_FOLDER}="):
            return os.path.join(root, word.partition("=")[2])
    return ""


def enter(environ: MutableMapping[str, str]) -> None:
    environ[VARIABLE] = str(os.getpid())


def leave(environ: MutableMapping[str, str]) -> None:
    """Only what is still ours is cleared."""
    if environ.get(VARIABLE) == str(os.getpid()):
        del environ[VARIABLE]


def _below_plan(path: str) -> str:
    """The part of the path from `plan/` on, which doflow names itself."""
    parts = os.path.normpath(path).split(os.sep)
    if "plan" in parts:
        return os.sep.join(parts[len(parts) - parts[::-1].index("plan") :])
    return "" if os.path.isabs(path) else path


def _dead(pid: str) -> bool:
    if not (pid.isascii() and pid.isdecimal()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _locked(session_path: str) -> bool:
    """A process id can be forged, a lock cannot: while the project's is held, there is a run."""

    try:
        return mutex.is_held(Path(uptodate_stamp.find_project_root(session_path)))
    except OSError:
        return False
