"""Locks that let either one `doit` run or a guardian with its runners work on a DOT file; and starting such processes.

A run takes the lock of a file exclusively, guardian and runners share it: a runner whose guardian has died still blocks a run.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from doflow.supervise import pipeline_context
from doflow.util import locks, state_folder
from doflow.util.errors import LockHeld, WorldError

#: who holds a file: a run holds it alone, a guardian together with its runners
RUN, GUARDIAN = "run", "guardian"


def lock_for_run(root: str, dot: str, command: str) -> int:
    """Lock the file for a run until this process ends; returns the descriptor."""
    return _take(root, dot, command, RUN)


@contextmanager
def lock_for_guardian(root: str, dot: str, command: str = "") -> Iterator[None]:
    """Lock the file as a guardian, or as one of its runners (without `command`); no-op without a file."""
    fd = _take(root, dot, command, GUARDIAN) if dot else -1
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _take(root: str, dot: str, command: str, role: str) -> int:
    state_folder.create(root)
    path = _lock_path(root, dot)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = locks.lock_file(path, role == GUARDIAN)
    if fd < 0:
        raise _refusal(root, dot, locks.read_holder(f"{path}.json"))
    if command:
        locks.write_holder(f"{path}.json", command, role=role)
    return fd


def _refusal(root: str, dot: str, holder: Mapping[str, Any]) -> LockHeld:
    """Which process holds it, and what to do."""
    shown, pid = os.path.relpath(dot), holder.get("pid")
    who = f"`{holder.get('command', '')}` (pid {pid}, since {holder.get('since')})"
    if holder.get("role") != GUARDIAN:
        return LockHeld(f"{shown} is in use by {who}", f"wait for it, or stop it (^C, kill {pid}), then run again")
    look = f"see its progress: doflow dot status {shown}"
    if is_alive(pid):
        hint = f"{look}; wait for it, or stop it: doflow guardian stop {shown}   then run again"
        return LockHeld(f"{shown} is in use by {who}", hint)
    names = ", ".join(f"{node} (pid {runner})" for node, runner in running_runners(root, dot)) or "a runner"
    return LockHeld(
        f"{shown}: its guardian has ended, but these are still running: {names}",
        f"{look}; continue with: doflow guardian launch {shown}   or stop them: doflow guardian stop {shown}",
    )


def running_runners(root: str, dot: str) -> list[tuple[str, int]]:
    """The running runners of this file: node, pid."""
    found = []
    base = os.path.join(root, state_folder.GUARDIAN)
    with suppress(OSError):
        for name in sorted(os.listdir(base)):
            if pipeline_context.load(os.path.join(base, name, "pipeline.json")).get("dot") != os.path.realpath(dot):
                continue
            for node in sorted(os.listdir(os.path.join(base, name, "nodes"))):
                pid = locks.holder_pid(os.path.join(base, name, "nodes", node, "runner.lock"))
                found += [(node, pid)] if pid else []
    return found


def _lock_path(root: str, dot: str) -> str:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(dot))).hexdigest()
    return os.path.join(root, state_folder.DRIVERS, f"{digest[:16]}.lock")


#: make a coding agent believe that it runs inside another one: removed, not emptied
NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PID", "TMUX", "TMUX_PANE")


def start_detached(words: tuple[str, ...], cwd: str, log: str, environ: Mapping[str, str]) -> int:
    """Start `doflow WORDS…` in a session of its own and return its pid. It stays our child: reap it with `exit_code`."""
    os.makedirs(os.path.dirname(log), exist_ok=True)
    env = {name: value for name, value in environ.items() if name not in NESTED}
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
    argv = [sys.executable, "-I", "-m", "doflow", *words]
    before = os.getcwd()
    try:
        os.chdir(cwd)
        return os.posix_spawn(sys.executable, argv, env, file_actions=actions, setsid=True, setsigmask=())
    except OSError as error:
        raise WorldError(f"cannot start {' '.join(argv)}: {error.strerror}", "check `ulimit -u`") from error
    finally:
        os.chdir(before)
        os.close(out)
        os.close(null)


def exit_code(pid: int) -> int | None:
    """The exit code of a child (negative for a signal); None = it is running, or not our child."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def is_alive(pid: object) -> bool:
    try:
        if isinstance(pid, int):
            os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return isinstance(pid, int)
