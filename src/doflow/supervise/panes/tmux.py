"""The door to tmux, through libtmux: sessions on a server of our own, with a configuration of our own."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from doflow.supervise.panes import socket as sockets
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import regex

WIDTH, HEIGHT = 160, 48
#: what has ended stays on the screen until it was read; nothing of the person's own configuration is in the way
CONFIG = b"set -g remain-on-exit on\nset -g history-limit 20000\nset -g escape-time 10\nset -g update-environment ''\n"
FAREWELL = 2.0  # seconds that a server without sessions is given to end

_NOT_NAME = regex(r"[^A-Za-z0-9]+")
_KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TMUX_TMPDIR", "SHELL")


def session_of(node: str) -> str:
    """The name of a node's session: `impl_auth` works in `orch-impl-auth`."""
    return f"orch-{_NOT_NAME.sub('-', node).strip('-') or 'node'}"


def socket_of(root: str, pipeline: str, environ: Mapping[str, str]) -> str:
    """The name of the server's socket: one per project and pipeline, so that equal names never meet."""
    said = environ.get("DOFLOW_TMUX", "")
    return said or f"{sockets.OURS}{hashlib.sha256(os.fsencode(root) + b'/' + pipeline.encode()).hexdigest()[:10]}"


class Tmux:
    """One tmux server; `home` is a folder of ours, for the files that it is handed."""

    def __init__(self, socket: str, home: str = "") -> None:
        self.socket = socket
        self.home = home
        self._server: Any = None

    def new(self, session: str, argv: tuple[str, ...], cwd: str, marks: Mapping[str, str]) -> None:
        """Start a program in a session of its own; `marks` are kept with the session, and are there as soon as it is."""
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        words = [
            word
            for name, value in marks.items()
            for word in (";", "set-option", "-t", f"={session}:", f"@{name}", value)
        ]
        with _in_file(self.home, CONFIG + _forgetting(os.environ)) as path:
            self._server = _server(self.socket, path)  # only this command starts a server, which reads it then
            try:
                self._do("new-session", "-d", "-s", session, *size, "-c", cwd, "--", *argv, *words)
            finally:
                self._server = None

    def mark(self, session: str, name: str) -> str:
        return self._ask("show-options", "-v", "-t", f"={session}:", f"@{name}").strip()

    def exists(self, session: str) -> bool:
        return bool(self._cmd("has-session", "-t", f"={session}").returncode == 0)

    def alive(self, session: str) -> bool:
        """It is there and its program has not ended."""
        return self._ask("list-panes", "-t", f"={session}:", "-F", "#{pane_dead}").strip() == "0"

    def sessions(self) -> list[str]:
        return self._ask("list-sessions", "-F", "#{session_name}").split()

    def capture(self, session: str, lines: int = HEIGHT) -> str:
        """The last lines of the pane, scroll-back included; '' if there is no such session."""
        text = self._ask("capture-pane", "-p", "-J", "-t", f"={session}:", "-S", f"-{max(0, lines)}")
        return "\n".join(text.rstrip().split("\n")[-lines:]) if lines > 0 else ""

    def type(self, session: str, text: str) -> None:
        """Type a text and press Enter. Several lines are pasted as one, so that none of them is sent by itself."""
        if "\n" in text or len(text) > 500:
            with _in_file(self.home, text.encode("utf-8", "replace")) as path:
                self._do("load-buffer", "-b", "doflow", path)
            self._do("paste-buffer", "-p", "-d", "-b", "doflow", "-t", f"={session}:")
        elif text:
            self._do("send-keys", "-t", f"={session}:", "-l", "--", text)
        time.sleep(0.5)  # programs take a quick Enter after a paste for a part of it
        self.press(session, "Enter")

    def press(self, session: str, *keys: str) -> None:
        self._do("send-keys", "-t", f"={session}:", *keys)

    def kill(self, session: str) -> None:
        """End a session; no harm if there is none."""
        self._cmd("kill-session", "-t", f"={session}")

    def leave(self) -> None:
        """Take the socket away if the server has ended, or is about to: tmux lets it lie."""
        path = sockets.path(self.socket, os.environ) if self.socket.startswith(sockets.OURS) else ""
        until = time.monotonic() + FAREWELL
        while path and os.path.exists(path) and not self.sessions():
            if sockets.clear(path) or time.monotonic() > until:
                break
            time.sleep(0.02)

    def attach(self, session: str) -> str:
        """What a person types to watch, and to help."""
        return f"tmux -L {self.socket} attach -t {session}"

    def _ask(self, *words: str) -> str:
        done = self._cmd(*words)
        return "\n".join(done.stdout) if done.returncode == 0 else ""

    def _do(self, *words: str) -> None:
        done = self._cmd(*words)
        if done.returncode:
            said = "; ".join(done.stderr) or f"exit code {done.returncode}"
            raise WorldError(f"tmux {words[0]} failed: {said}", f"look at it: tmux -L {self.socket} list-sessions")

    def _cmd(self, *words: str) -> Any:
        if self._server is None:
            self._server = _server(self.socket)
        return self._server.cmd(*words)


def check() -> None:
    """Say what is missing before anything begins: tmux itself, or the library."""
    import shutil
    from importlib.util import find_spec

    if find_spec("libtmux") is None:
        raise WorldError("agents in tmux need libtmux, which is not installed", "pip install 'doflow[tmux]'")
    if not shutil.which("tmux"):
        hint = "install it (apt install tmux, brew install tmux), or let the step run headless"
        raise WorldError("tmux is not on the path", hint)


def _server(socket: str, config: str | None = None) -> Any:
    check()
    import libtmux

    return libtmux.Server(socket_name=socket, config_file=config)


def _forgetting(environ: Mapping[str, str]) -> bytes:
    """A server keeps the environment of whoever starts it: it begins by forgetting what an agent should not see."""
    names = [name for name in environ if name not in _KEPT and name.isidentifier() and name.isascii()]
    return "".join(f"set-environment -gu {name}\n" for name in names).encode()


@contextmanager
def _in_file(home: str, data: bytes) -> Iterator[str]:
    """A file for as long as tmux reads it, where nobody else can have laid one."""
    import tempfile

    os.makedirs(home, exist_ok=True)
    fd, path = tempfile.mkstemp(prefix=".tmux-", dir=home)
    try:
        try:
            files.put(fd, data)
        finally:
            os.close(fd)
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)
