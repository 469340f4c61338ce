"""Run lock: a flock on the project's folder, released by the kernel however the holder ends.

Projects in one working tree share its branch and index, so the top folder of the working tree is locked too. An agent must
not start the run it is part of: an environment variable gives a helpful message, the lock is what enforces it. In the view of
an agent the project's folder is another one, `.doflow/` is the same: it is locked for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from doflow.config import uptodate_stamp
from doflow.runs import mutex
from doflow.util import locks, state_folder
from doflow.util.errors import DoflowError, LockHeld

#: the descriptor that a bug-fix session inherits from the run that starts it: the same lock, not another one
LENT = "DOFLOW_LOCK_FD"
_held: list[tuple[str, int]] = []


class Holder:
    """The lock of this process. `holder.json` only names the holder in error messages.

    `left`: when the previous holder took the lock, if it was killed (0 = it ended normally); `dead`: its pid.
    """

    def __init__(self, root: Path, command: str) -> None:
        self._root = root
        self._command = command
        self._fd = self._top = self._records = -1
        self._signed = False
        self._lent = False
        self.left = 0.0
        self.dead = 0

    def take(self) -> None:
        self._fd = _inherited(self._root)
        self._lent = self._fd >= 0
        if not self._lent:
            self._take()
        _held.append((str(self._root), self._fd))

    def _take(self) -> None:
        fd = locks.lock_folder(self._root)
        if fd < 0:
            message = f"another run is active in {self._root}{describe_holder(self._root)}"
            raise LockHeld(message, "wait for it, or stop it with ^C")
        self._fd = fd
        top = _top(os.path.realpath(self._root))
        if top:
            self._top = locks.lock_folder(top)
            if self._top < 0:
                self.release()
                words = f"another run is active in {top}, the working tree of {self._root}{_from_kernel(top)}"
                hint = "wait for it, or stop it with ^C; or use a separate worktree: git worktree add"
                raise LockHeld(words, hint)
        if not self._lock_records():
            self.release()
            raise LockHeld(f"another run is active in {self._root}{describe_holder(self._root)}", "wait for it to end")
        signed = self._root / state_folder.HOLDER
        with suppress(OSError):
            self.left = signed.stat().st_mtime
            pid = locks.read_holder(signed).get("pid")
            self.dead = pid if isinstance(pid, int) else 0

    def _lock_records(self) -> bool:
        """Lock `.doflow/` as soon as there is one; False if another process holds it."""
        folder = self._root / state_folder.NAME
        if self._records < 0 and folder.is_dir():
            self._records = locks.lock_folder(folder)
            return self._records >= 0
        return True

    def sign(self) -> None:
        """Write `holder.json`; called when the run really starts."""
        if self._lent:
            return
        locks.write_holder(self._root / state_folder.HOLDER, self._command)
        self._signed = True
        self._lock_records()

    def release(self) -> None:
        if self._fd >= 0:
            if self._signed:
                with suppress(OSError):  # informational only; the lock is released with its descriptor
                    (self._root / state_folder.HOLDER).unlink()
            _held[:] = [entry for entry in _held if entry[1] != self._fd]
            os.close(self._fd)
            self._fd = -1
        for fd in (self._top, self._records):
            if fd >= 0:
                os.close(fd)
        self._top = self._records = -1


def own_descriptor(root: Path) -> int:
    """The descriptor with which this process holds the lock of a project; -1 = it does not."""
    return next((fd for folder, fd in _held if folder == str(root)), -1)


def describe_holder(root: Path) -> str:
    """ " (pid 123, since …)", as far as it is known."""
    words = locks.read_holder(root / state_folder.HOLDER)
    if words.keys() >= {"pid", "since", "command"}:
        return f" (pid {words['pid']}, since {words['since']}: {words['command']})"
    return _from_kernel(root)


def is_held(root: Path) -> bool:
    """Whether any process holds the lock now."""
    return locks.is_held(root)


def _inherited(root: Path) -> int:
    """The lock descriptor inherited from the parent run; -1 = none."""
    text = os.environ.pop(LENT, "")
    return int(text) if text.isascii() and text.isdecimal() and locks.adopt(int(text), root) else -1


def _top(folder: str) -> str:
    """The top of the working tree above a folder; '' if the folder is the top itself, or in no working tree."""
    if os.path.lexists(os.path.join(folder, ".git")):
        return ""
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
    return ""


def _from_kernel(folder: str | Path) -> str:
    pid = locks.holder_from_kernel(folder)
    return f" (pid {pid})" if pid else ""


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
