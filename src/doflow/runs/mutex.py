"""One run at a time: a flock on the project's folder, which the kernel gives back however the holder ends.

Projects in one work tree share its branch and its index: the folder at its top is locked too, where the project is not that.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from doflow.util.errors import LockHeld

#: the descriptor that a bug-fix session inherits from the run that starts it: the same lock, not another one
LENT = "DOFLOW_LOCK_FD"
_held: list[tuple[str, int]] = []


class Holder:
    """The lock of this process. `holder.json` only makes the message of the next one kind.

    `left`: when the holder before signed, if it was killed (seconds; 0 = it ended in order), and `dead`: its pid.
    """

    def __init__(self, root: Path, command: str) -> None:
        self._root = root
        self._command = command
        self._fd = self._top = -1
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
        fd = _locked(str(self._root))
        if fd < 0:
            raise LockHeld(f"another run works in {self._root}{who(self._root)}", "wait for it, or stop it with ^C")
        self._fd = fd
        top = _top(os.path.realpath(self._root))
        if top:
            self._top = _locked(top)
            if self._top < 0:
                self.release()
                words = f"another run works in {top}, the work tree of {self._root}{_from_kernel(Path(top))}"
                hint = "wait for it, or stop it with ^C; in a work tree of its own it can run now: git worktree add"
                raise LockHeld(words, hint)
        signed = self._root / ".doflow" / "holder.json"
        with suppress(OSError):
            self.left = signed.stat().st_mtime
            self.dead = _pid(signed)

    def sign(self) -> None:
        """Say who holds it; called when the run really begins."""
        if self._lent:
            return
        import json

        from doflow.runs.state import event_log as ledger
        from doflow.util import atomic_files as files

        words = {"pid": os.getpid(), "since": ledger.now(), "command": self._command}
        files.write(str(self._root / ".doflow" / "holder.json"), (json.dumps(words) + "\n").encode(), sync=False)
        self._signed = True

    def release(self) -> None:
        if self._fd >= 0:
            if self._signed:
                with suppress(OSError):  # only words; the lock itself goes with its descriptor
                    (self._root / ".doflow" / "holder.json").unlink()
            _held[:] = [entry for entry in _held if entry[1] != self._fd]
            os.close(self._fd)
            self._fd = -1
        if self._top >= 0:
            os.close(self._top)
            self._top = -1


def mine(root: Path) -> int:
    """The descriptor by which this process holds the lock of a project; -1 = it does not."""
    return next((fd for folder, fd in _held if folder == str(root)), -1)


def who(root: Path) -> str:
    """ " (pid 123, since …)", as far as it is known."""
    import json

    try:
        words = json.loads((root / ".doflow" / "holder.json").read_text())
        return f" (pid {words['pid']}, since {words['since']}: {words['command']})"
    except (OSError, ValueError, KeyError):
        return _from_kernel(root)


def held(root: Path) -> bool:
    """Does somebody hold the lock now?"""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _inherited(root: Path) -> int:
    """The lock as the run above holds it: its descriptor proves itself, for through any other one it is held."""
    said = os.environ.pop(LENT, "")
    if not (said.isascii() and said.isdecimal()):
        return -1
    fd = int(said)
    try:
        lent, there = os.fstat(fd), os.stat(root)
        if (lent.st_dev, lent.st_ino) != (there.st_dev, there.st_ino):
            return -1
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(fd, False)
    except OSError:
        return -1
    return fd


def _top(folder: str) -> str:
    """The top of the work tree that a folder lies below; '' if it is that itself, or in none."""
    if os.path.lexists(os.path.join(folder, ".git")):
        return ""
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
    return ""


def _locked(folder: str) -> int:
    """A descriptor that holds the lock of a folder; -1 = somebody else holds it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _patiently(fd)
    except OSError:
        os.close(fd)
        return -1
    return fd


def _patiently(fd: int) -> None:
    """Whoever only asks whether it is held holds it for a moment too: so a refusal is asked for three times."""
    import time

    for _ in range(2):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(0.02)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _pid(signed: Path) -> int:
    import json

    try:
        return int(json.loads(signed.read_text())["pid"])
    except (ValueError, KeyError, TypeError):
        return 0


def _from_kernel(root: Path) -> str:
    try:
        found = os.stat(root)
        mark = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if mark in words and "FLOCK" in words and "->" not in words:
                return f" (pid {words[4]})"
    except (OSError, IndexError):
        pass
    return ""
