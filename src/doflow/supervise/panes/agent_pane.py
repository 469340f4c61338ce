"""One agent in one pane, from its start to its end. All that is known of it is in its folder, so any process can take over.

FOLDER/prompt.md · started.json · exit.json · events/Stop-….json (what its hooks told) · screen.txt (what it showed last)
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from doflow.supervise.panes.programs import EVENTS, Start
from doflow.supervise.panes.tmux import Tmux
from doflow.util import atomic_files as files
from doflow.util.process import orphans as marked
from doflow.util.records import dataclass

NEW, RUNNING, ENDED, GONE = "new", "running", "ended", "gone"
FAREWELL = 8.0


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of an agent: the session it works in, the folder that tells of it."""

    tmux: Tmux
    session: str
    folder: str

    def state(self) -> str:
        """new (never started), running, ended (with an exit code), gone (nobody saw its end)."""
        if os.path.exists(self._path("exit.json")):
            return ENDED
        if self.tmux.mark(self.session, "seat") == self.folder and self.tmux.alive(self.session):
            return RUNNING
        if os.path.exists(self._path("exit.json")):
            return ENDED
        return GONE if os.path.exists(self._path("started.json")) else NEW

    def exit_code(self) -> int | None:
        """None = it did not end by itself, or nobody knows how."""
        found = _json(self._path("exit.json"))
        code = found.get("code")
        return code if isinstance(code, int) and not found.get("signal") else None

    def events(self, kind: str = "") -> list[tuple[str, dict[str, Any]]]:
        """What its hooks have told, oldest first: the file's name and what it says."""
        folder = self._path(EVENTS)
        with suppress(FileNotFoundError):
            names = [name for name in os.listdir(folder) if name.startswith(kind) and name.endswith(".json")]
            ages = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in names}
            return [(name, _json(os.path.join(folder, name))) for name in sorted(names, key=ages.__getitem__)]
        return []

    def screen(self, lines: int = 200) -> str:
        """What it shows; after its end what it showed last."""
        if self.tmux.mark(self.session, "seat") == self.folder:
            text = self.tmux.capture(self.session, lines)
            if text.strip() and os.path.isdir(self.folder):
                files.write(self._path("screen.txt"), text.encode("utf-8", "replace"), sync=False)
                return text
        with suppress(OSError), open(self._path("screen.txt"), encoding="utf-8", errors="replace") as stream:
            return stream.read()
        return ""

    def end(self) -> None:
        """Close the pane; whatever its program has started goes with it."""
        self.screen()
        if self.tmux.mark(self.session, "seat") == self.folder:
            self.tmux.kill(self.session)
        self._farewell()
        self.tmux.leave()

    def _farewell(self) -> None:
        if not os.path.exists(self._path("started.json")):
            return
        until = time.monotonic() + FAREWELL
        while not os.path.exists(self._path("exit.json")) and _lives(_json(self._path("started.json")).get("pid")):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        marked.kill(f"DOFLOW_SEAT={self.folder}".encode())

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def take(seat: Seat, start: Start, marks: Mapping[str, str], leash: str = "") -> None:
    """Start the program in a new session. Whatever had this session before is ended.

    `leash`: a file that we hold locked; the program ends when nobody does any more.
    """
    os.makedirs(os.path.join(seat.folder, EVENTS), exist_ok=True)
    for name, text in start.files:
        files.write(os.path.join(seat.folder, name), text.encode("utf-8", "surrogateescape"), sync=False)
    command = start.command
    spec = {"argv": list(command.argv), "env": dict(command.env), "cwd": command.cwd, "leash": leash}
    files.write(os.path.join(seat.folder, "spec.json"), json.dumps(spec).encode(), 0o600, sync=False)
    if seat.tmux.exists(seat.session):
        seat.tmux.kill(seat.session)
    argv = (sys.executable, "-I", "-m", "doflow.supervise.panes.launcher", seat.folder)
    seat.tmux.new(seat.session, argv, command.cwd, {"seat": seat.folder, **marks})


def usage(seat: Seat) -> dict[str, int]:
    """Tokens that it has used, from the transcript that its last hook names; {} = not known."""
    told = [record.get("transcript_path") for _, record in seat.events() if record.get("transcript_path")]
    if not told:
        return {}
    total = {"tokens_in": 0, "tokens_out": 0, "context": 0}
    with suppress(OSError), open(str(told[-1]), encoding="utf-8", errors="replace") as stream:
        seen: set[str] = set()
        for line in stream:
            message = _message(line)
            used, name = message.get("usage"), str(message.get("id", ""))
            if not isinstance(used, dict) or name in seen:
                continue
            seen.add(name)
            read = sum(int(used.get(f"{kind}input_tokens") or 0) for kind in ("", "cache_creation_", "cache_read_"))
            total["tokens_in"] += read
            total["tokens_out"] += int(used.get("output_tokens") or 0)
            total["context"] = read
    return total


def _message(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    message = found.get("message") if isinstance(found, dict) else None
    return message if isinstance(message, dict) else {}


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lives(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
