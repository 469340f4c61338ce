"""A run started from inside a run is refused, before anything is written: an agent must not start the machine it is
part of. The variable makes the message kind; the run lock is what really holds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping

from doflow.errors import DoflowError

VARIABLE = "PRP_PIPELINE_RUNNING"
FLAG = "SKIP_BUG_FINDING"


class NestedExecutionError(DoflowError):
    """The refusal; its words are a contract."""


def validate_nested_execution(session_path: str, environ: Mapping[str, str] | None = None) -> None:
    """Nothing if this process may run; only a bug-fix session below `plan/` may start inside another run."""
    given = os.environ if environ is None else environ
    running = given.get(VARIABLE, "")
    if not running or running == str(os.getpid()):
        return
    if given.get(FLAG) == "true" and "bugfix" in _below_plan(session_path):
        return
    if _dead(running):
        sys.stderr.write(f"warning: {VARIABLE} names process {running}, which is gone; going on\n")
        return
    raise NestedExecutionError(
        f"Nested PRP Pipeline execution detected. Only bug fix sessions can recurse. PID: {running}"
    )


def enter(environ: MutableMapping[str, str]) -> None:
    environ[VARIABLE] = str(os.getpid())


def leave(environ: MutableMapping[str, str]) -> None:
    """Only what is still ours is cleared."""
    if environ.get(VARIABLE) == str(os.getpid()):
        del environ[VARIABLE]


def _below_plan(path: str) -> str:
    parts = os.path.normpath(path).split(os.sep)
    return os.sep.join(parts[len(parts) - parts[::-1].index("plan") :]) if "plan" in parts else ""


def _dead(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
