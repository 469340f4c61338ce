"""Starting a layer of ours that outlives us: in a session of its own, without CLAUDECODE, its words in a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from doflow.util.errors import WorldError

#: what would make a coding agent below believe that it runs inside another one: removed, not emptied
NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PID", "TMUX", "TMUX_PANE")


def start(words: tuple[str, ...], cwd: str, log: str, environ: Mapping[str, str]) -> int:
    """`doflow WORDS…` as a process of its own; its pid. It is our child until we end: collect it with `ended`."""
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


def ended(pid: int) -> int | None:
    """The exit code of a child (of a signal: negative); None = it runs, or it is not ours to ask."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
