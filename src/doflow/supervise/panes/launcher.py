"""Runs in a pane: starts the agent's program, waits for it, and kills all its descendants at the end.

    python -I -m doflow.supervise.panes.launcher FOLDER

FOLDER/spec.json has the command and is removed once it is read (it holds the environment). `started.json` and `exit.json`
record the result; closing the pane or killing the server ends the whole process tree.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from doflow.util import atomic_files, locks, timestamps
from doflow.util.process import supervisor

GRACE = 3.0
_received: list[int] = []


def main(folder: str) -> int:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _on_signal)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # keys are meant for the agent
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
    except supervisor.Trouble as trouble:
        sys.stdout.write(f"doflow: {trouble.text}\n")
        code = trouble.code
    _note(folder, "exit.json", {"code": code, "signal": _received[0] if _received else 0})
    return code if 0 <= code < 256 else 1


def _run(spec: dict[str, Any]) -> int:
    if supervisor.LINUX:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    env = spec["env"] | {name: os.environ[name] for name in ("TERM",) if name in os.environ}
    argv = [os.fsencode(word) for word in spec["argv"]]
    os.chdir(spec["cwd"])
    pid = _start(argv, {os.fsencode(name): os.fsencode(value) for name, value in env.items()})
    status = _wait(pid, spec.get("leash", ""))
    if _received:
        supervisor.terminate()
        end = time.monotonic() + GRACE
        while status is None and time.monotonic() < end:
            time.sleep(0.02)
            status = _reaped(pid, status)
    status = _sweep(pid, status)
    return -9 if status is None else os.waitstatus_to_exitcode(status)


def _start(argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """Start in the pane's process group, so that keys and signals of the terminal reach it."""
    for path in supervisor.places(argv[0], env):
        try:
            return os.posix_spawn(path, argv, env, setsigmask=(), setsigdef=supervisor.RESTORED)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise supervisor.Trouble(126, "start", supervisor.reason(path, error)) from error
    raise supervisor.Trouble(127, "start", f"program not found: {os.fsdecode(argv[0])} (not in any folder on PATH)")


def _wait(pid: int, leash: str) -> int | None:
    """Until it ends, we get a signal, or the leash is released."""
    status: int | None = None
    while status is None and not _received:
        time.sleep(0.05)
        status = _reaped(pid, status)
        if leash and status is None and not locks.is_held(leash):
            _received.append(signal.SIGTERM)
    return status


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
    end = time.monotonic() + supervisor.SWEEP_LIMIT
    while time.monotonic() < end:
        status = _reaped(pid, status)
        left = supervisor.freeze()
        if not left:
            break
        for one in left:
            supervisor.send(one, signal.SIGKILL)
        time.sleep(0.01)
    return _reaped(pid, status)


def _note(folder: str, name: str, words: dict[str, Any]) -> None:
    data = json.dumps(words | {"at": timestamps.format_microseconds()}) + "\n"
    atomic_files.write_file(os.path.join(folder, name), data.encode())


def _on_signal(number: int, _: FrameType | None) -> None:
    _received.append(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
