"""tmux through libtmux: sessions on a server of our own, with our own configuration."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from doflow.util import atomic_files, locks
from doflow.util.errors import WorldError

WIDTH, HEIGHT = 160, 48
#: dead panes stay readable; the user's own tmux configuration is not loaded
CONFIG = b"set -g remain-on-exit on\nset -g history-limit 20000\nset -g escape-time 10\nset -g update-environment ''\n"
EXIT_TIMEOUT = 2.0  # seconds for a server without sessions to end
SOCKET_PREFIX = "doflow-"
_NOT_NAME = re.compile(r"[^A-Za-z0-9]+")
_KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TMUX_TMPDIR", "SHELL")


def session_name(node: str) -> str:
    """The name of a node's session: `impl_auth` works in `orch-impl-auth`."""
    return f"orch-{_NOT_NAME.sub('-', node).strip('-') or 'node'}"


def socket_name(root: str, pipeline: str, environ: Mapping[str, str]) -> str:
    """The name of the server's socket: one per project and pipeline, so that equal session names don't clash."""
    digest = hashlib.sha256(os.fsencode(root) + b"/" + pipeline.encode()).hexdigest()
    return environ.get("DOFLOW_TMUX") or f"{SOCKET_PREFIX}{digest[:10]}"


class Tmux:
    """One tmux server; `home` is a folder for the files that we pass to it."""

    def __init__(self, socket_name: str, home: str = "") -> None:
        self.socket = socket_name
        self.home = home
        self._server: Any = None

    def new(self, session: str, argv: tuple[str, ...], cwd: str, marks: Mapping[str, str]) -> None:
        """Start a program in a new session; `marks` are set as user options together with it."""
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        words: list[str] = []
        for name, value in marks.items():
            words += [";", "set-option", "-t", f"={session}:", f"@{name}", value]
        with _in_file(self.home, CONFIG + _clear_environment(os.environ)) as path:
            self._server = _server(self.socket, path)  # only this command starts a server, which reads the file
            try:
                self._do("new-session", "-d", "-s", session, *size, "-c", cwd, "--", *argv, *words)
            finally:
                self._server = None

    def mark(self, session: str, name: str) -> str:
        return self._ask("show-options", "-v", "-t", f"={session}:", f"@{name}").strip()

    def exists(self, session: str) -> bool:
        return bool(self._cmd("has-session", "-t", f"={session}").returncode == 0)

    def alive(self, session: str) -> bool:
        """The session exists and its program has not ended."""
        return self._ask("list-panes", "-t", f"={session}:", "-F", "#{pane_dead}").strip() == "0"

    def sessions(self) -> list[str]:
        return self._ask("list-sessions", "-F", "#{session_name}").split()

    def capture(self, session: str, lines: int = HEIGHT) -> str:
        """The last lines of the pane, including scrollback; '' if there is no such session."""
        text = self._ask("capture-pane", "-p", "-J", "-t", f"={session}:", "-S", f"-{max(0, lines)}")
        return "\n".join(text.rstrip().split("\n")[-lines:]) if lines > 0 else ""

    def type(self, session: str, text: str) -> None:
        """Type a text and press Enter. Several lines are pasted at once, so that none is submitted on its own."""
        if "\n" in text or len(text) > 500:
            with _in_file(self.home, text.encode("utf-8", "replace")) as path:
                self._do("load-buffer", "-b", "doflow", path)
            self._do("paste-buffer", "-p", "-d", "-b", "doflow", "-t", f"={session}:")
        elif text:
            self._do("send-keys", "-t", f"={session}:", "-l", "--", text)
        time.sleep(0.5)  # programs treat a quick Enter after a paste as part of it
        self.press(session, "Enter")

    def press(self, session: str, *keys: str) -> None:
        self._do("send-keys", "-t", f"={session}:", *keys)

    def kill(self, session: str) -> None:
        """End a session; no-op if it doesn't exist."""
        self._cmd("kill-session", "-t", f"={session}")

    def leave(self) -> None:
        """Remove the socket if the server has ended, or is about to: tmux leaves it behind."""
        path = socket_path(self.socket, os.environ) if self.socket.startswith(SOCKET_PREFIX) else ""
        until = time.monotonic() + EXIT_TIMEOUT
        while path and os.path.exists(path) and not self.sessions():
            if remove_dead_socket(path) or time.monotonic() > until:
                break
            time.sleep(0.02)

    def attach(self, session: str) -> str:
        """The command with which a person can watch and help."""
        return f"tmux -L {self.socket} attach -t {session}"

    def _ask(self, *words: str) -> str:
        done = self._cmd(*words)
        return "\n".join(done.stdout) if done.returncode == 0 else ""

    def _do(self, *words: str) -> None:
        done = self._cmd(*words)
        if done.returncode:
            message = "; ".join(done.stderr) or f"exit code {done.returncode}"
            hint = f"check it with: tmux -L {self.socket} list-sessions"
            raise WorldError(f"tmux {words[0]} failed: {message}", hint)

    def _cmd(self, *words: str) -> Any:
        if self._server is None:
            self._server = _server(self.socket)
        return self._server.cmd(*words)


def check_installed() -> None:
    """Check that tmux and libtmux are installed."""
    if find_spec("libtmux") is None:
        raise WorldError("agents in tmux need libtmux, which is not installed", "pip install 'doflow[tmux]'")
    if not shutil.which("tmux"):
        hint = "install it (apt install tmux, brew install tmux), or run the step headless"
        raise WorldError("tmux is not on PATH", hint)


def _server(name: str, config: str | None = None) -> Any:
    check_installed()
    import libtmux

    return libtmux.Server(socket_name=name, config_file=config)


def _clear_environment(environ: Mapping[str, str]) -> bytes:
    """Unset what an agent should not see: a tmux server keeps the environment of the process that starts it."""
    names = [name for name in environ if name not in _KEPT and name.isidentifier() and name.isascii()]
    return "".join(f"set-environment -gu {name}\n" for name in names).encode()


@contextmanager
def _in_file(home: str, data: bytes) -> Iterator[str]:
    """A temporary file in our own folder while tmux reads it."""
    os.makedirs(home, exist_ok=True)
    fd, path = tempfile.mkstemp(prefix=".tmux-", dir=home)
    try:
        try:
            atomic_files.write_all(fd, data)
        finally:
            os.close(fd)
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)


def socket_path(name: str, environ: Mapping[str, str]) -> str:
    """The path at which tmux puts the socket of this name."""
    for base in (environ.get("TMUX_TMPDIR", ""), "/tmp"):
        if base and os.path.isdir(base):
            return os.path.join(os.path.realpath(base), f"tmux-{os.getuid()}", name)
    return ""


def remove_dead_socket(place: str) -> bool:
    """Remove a socket without a listener; False = a server listens, or is starting.

    Follows tmux's protocol: a starting server holds `<socket>.lock`, so it is left alone.
    """
    try:
        fd = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        if not locks.acquire(fd):
            return False
        if not _is_dead(place):
            os.unlink(f"{place}.lock")
            return False
        for name in (place, f"{place}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(name)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_dead(place: str) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(place)
        except OSError as error:
            return isinstance(error, (ConnectionRefusedError, FileNotFoundError))
    return False
