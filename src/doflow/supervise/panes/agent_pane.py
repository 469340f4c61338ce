"""One agent in one pane, from start to end. Its state is in its folder, so any process can take over.

FOLDER/prompt.md · started.json · exit.json · events/Stop-….json (from its hooks) · screen.txt (its last screen)
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from doflow.supervise import ownership, pipeline_context
from doflow.supervise.panes import screen
from doflow.supervise.panes.programs import EVENTS, PaneProgram
from doflow.supervise.panes.tmux import Tmux
from doflow.util import atomic_files
from doflow.util.process import runner

NEW, RUNNING, ENDED, GONE = "new", "running", "ended", "gone"
EXIT_TIMEOUT = 8.0
REDRAW = 3.0  # seconds for a program to remove a menu from its screen
_FREE = ("type something", "other", "something else", "no, and tell")

#: in the question that follows an answer which no menu entry fits
NOT_AN_OPTION = "isn't one of the options."


@dataclass(frozen=True, slots=True)
class AgentPane:
    """The tmux session and state folder of an agent."""

    tmux: Tmux
    session: str
    folder: str

    def state(self) -> str:
        """new (never started), running, ended (with an exit code), gone (its end was not recorded)."""
        if os.path.exists(self._path("exit.json")):
            return ENDED
        if self.tmux.mark(self.session, "seat") == self.folder and self.tmux.alive(self.session):
            return RUNNING
        if os.path.exists(self._path("exit.json")):
            return ENDED
        return GONE if os.path.exists(self._path("started.json")) else NEW

    def exit_code(self) -> int | None:
        """None = it was killed, or its exit code is unknown."""
        found = pipeline_context.load(self._path("exit.json"))
        code = found.get("code")
        return code if isinstance(code, int) and not found.get("signal") else None

    def events(self, kind: str = "") -> list[tuple[str, dict[str, Any]]]:
        """The events from its hooks, oldest first: file name and content."""
        folder = self._path(EVENTS)
        with suppress(FileNotFoundError):
            names = [name for name in os.listdir(folder) if name.startswith(kind) and name.endswith(".json")]
            ages = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in names}
            names.sort(key=ages.__getitem__)
            return [(name, pipeline_context.load(os.path.join(folder, name))) for name in names]
        return []

    def screen(self, lines: int = 200) -> str:
        """Its screen; after its end the last one."""
        if self.tmux.mark(self.session, "seat") == self.folder:
            text = self.tmux.capture(self.session, lines)
            if text.strip() and os.path.isdir(self.folder):
                atomic_files.write_file(self._path("screen.txt"), text.encode("utf-8", "replace"), sync=False)
                return text
        with suppress(OSError), open(self._path("screen.txt"), encoding="utf-8", errors="replace") as stream:
            return stream.read()
        return ""

    def end(self) -> None:
        """Close the pane and kill everything its program has started."""
        self.screen()
        if self.tmux.mark(self.session, "seat") == self.folder:
            self.tmux.kill(self.session)
        self._wait_for_exit()
        self.tmux.leave()

    def _wait_for_exit(self) -> None:
        if not os.path.exists(self._path("started.json")):
            return
        pid = pipeline_context.load(self._path("started.json")).get("pid")
        until = time.monotonic() + EXIT_TIMEOUT
        while not os.path.exists(self._path("exit.json")) and ownership.is_alive(pid) and time.monotonic() <= until:
            time.sleep(0.02)
        runner.kill_marked(f"DOFLOW_SEAT={self.folder}".encode())

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def start_pane(pane: AgentPane, start: PaneProgram, marks: Mapping[str, str], leash: str = "") -> None:
    """Start the program in a new session; an existing session of this name is ended.

    `leash`: a file that we keep locked; the program ends when the lock is released.
    """
    os.makedirs(os.path.join(pane.folder, EVENTS), exist_ok=True)
    for name, text in start.files:
        atomic_files.write_file(os.path.join(pane.folder, name), text.encode("utf-8", "surrogateescape"), sync=False)
    command = start.command
    spec = {"argv": list(command.argv), "env": dict(command.env), "cwd": command.cwd, "leash": leash}
    atomic_files.write_file(os.path.join(pane.folder, "spec.json"), json.dumps(spec).encode(), 0o600, sync=False)
    if pane.tmux.exists(pane.session):
        pane.tmux.kill(pane.session)
    argv = (sys.executable, "-I", "-m", "doflow.supervise.panes.launcher", pane.folder)
    pane.tmux.new(pane.session, argv, command.cwd, {"seat": pane.folder, **marks})


def type_answer(pane: AgentPane, text: str) -> bool:
    """Choose an option by its number, type anything else; False = the menu has no such option."""
    reading = screen.read_screen(pane.screen(60))
    options = reading.options
    number = screen.match_choice(text, options)
    if not reading.menu:
        pane.tmux.type(pane.session, options[number - 1] if number else text)
        return True
    free = next((place for place, option in enumerate(options, 1) if option.casefold().startswith(_FREE)), 0)
    if not number and not free:
        return False
    pane.tmux.press(pane.session, str(number or free))
    if not number:
        time.sleep(REDRAW / 4)
        pane.tmux.type(pane.session, text)
    elif not _menu_gone(pane, reading.question):
        pane.tmux.press(pane.session, "Enter")
        _menu_gone(pane, reading.question)
    return True


def _menu_gone(pane: AgentPane, question: str) -> bool:
    """Wait until the menu is gone, so that a slow terminal doesn't get the answer twice."""
    until = time.monotonic() + REDRAW
    while time.monotonic() < until:
        if screen.read_screen(pane.screen(60)).question != question:
            return True
        time.sleep(0.1)
    return False


def token_usage(pane: AgentPane) -> dict[str, int]:
    """Tokens used, from the transcript named by its last hook; {} = unknown."""
    transcripts = [record.get("transcript_path") for _, record in pane.events() if record.get("transcript_path")]
    if not transcripts:
        return {}
    total = {"tokens_in": 0, "tokens_out": 0, "context": 0}
    with suppress(OSError), open(str(transcripts[-1]), encoding="utf-8", errors="replace") as stream:
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
