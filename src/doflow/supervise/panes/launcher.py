"""What runs in a pane: it starts the agent's program, waits for it, and leaves nothing of it behind.

    python -I -m doflow.supervise.panes.launcher FOLDER

FOLDER/spec.json says what to start, and is removed once it is read (it holds the environment). `started.json` and
`exit.json` say what came of it; a pane that is closed, or a server that dies, ends the whole tree.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from doflow.util import atomic_files as files
from doflow.util.process import supervisor as nanny

GRACE = 3.0
_told: list[int] = []


def main(folder: str) -> int:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _hear)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # what a person types is for the agent
    path = os.path.join(folder, "spec.json")
    try:
        with open(path, encoding="utf-8") as stream:
            spec = json.load(stream)
        os.unlink(path)
    except (OSError, ValueError) as error:
        sys.stdout.write(f"doflow: {path}: {error}\n")
        _note(folder, "exit.json", {"code": 125, "signal": 0})
        return 125
    _note(folder, "started.json", {"pid": os.getpid(), "argv": spec["argv"]})
    try:
        code = _run(spec)
    except nanny.Trouble as trouble:
        sys.stdout.write(f"doflow: {trouble.text}\n")
        code = trouble.code
    _note(folder, "exit.json", {"code": code, "signal": _told[0] if _told else 0})
    return code if 0 <= code < 256 else 1


def _run(spec: dict[str, Any]) -> int:
    if nanny.LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    env = spec["env"] | {name: os.environ[name] for name in ("TERM",) if name in os.environ}
    argv = [os.fsencode(word) for word in spec["argv"]]
    os.chdir(spec["cwd"])
    pid = _start(argv, {os.fsencode(name): os.fsencode(value) for name, value in env.items()})
    status = _wait(pid, spec.get("leash", ""))
    if _told:
        nanny.terminate()
        end = time.monotonic() + GRACE
        while status is None and time.monotonic() < end:
            time.sleep(0.02)
            status = _reaped(pid, status)
    status = _sweep(pid, status)
    return -9 if status is None else os.waitstatus_to_exitcode(status)


def _start(argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """In the pane's own process group, so that keys and signals of the terminal reach it."""
    restored = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
    for path in nanny.places(argv[0], env):
        try:
            return os.posix_spawn(path, argv, env, setsigmask=(), setsigdef=restored)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise nanny.Trouble(126, "start", nanny.reason(path, error)) from error
    raise nanny.Trouble(127, "start", f"program not found: {os.fsdecode(argv[0])} (it is in no folder of PATH)")


def _wait(pid: int, leash: str) -> int | None:
    """Until it ends, or we are told to, or nobody holds the leash any more."""
    status: int | None = None
    while status is None and not _told:
        time.sleep(0.05)
        status = _reaped(pid, status)
        if leash and status is None and _loose(leash):
            _told.append(signal.SIGTERM)
    return status


def _loose(path: str) -> bool:
    """Whoever started us is gone, however it ended: the lock that it held is free."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _reaped(main_pid: int, status: int | None) -> int | None:
    with suppress(ChildProcessError):
        while True:
            pid, found = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            status = found if pid == main_pid else status
    return status


def _sweep(pid: int, status: int | None) -> int | None:
    """Kill whatever is left of the tree."""
    end = time.monotonic() + nanny.SWEEP_LIMIT
    while time.monotonic() < end:
        status = _reaped(pid, status)
        left = nanny.freeze()
        if not left:
            break
        for one in left:
            nanny.send(one, signal.SIGKILL)
        time.sleep(0.01)
    return _reaped(pid, status)


def _note(folder: str, name: str, words: dict[str, Any]) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    files.write(os.path.join(folder, name), (json.dumps(words | {"at": at}) + "\n").encode())


def _hear(number: int, _: FrameType | None) -> None:
    _told.append(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
