"""The live view of a terminal: one changing line for each running step, below the lines that `Plain` prints.

The changing lines are painted by a thread, started with the first step. It reads `_rows` without a lock: the dict is
never modified, only replaced.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from doflow.engine.view_text import SIGNS, Entry, Plain
from doflow.flow.model import Outcome, Status
from doflow.util.process import runner
from doflow.util.text import clean, format_duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_RATE = 4
_STYLES = {"": "cyan", "||": "yellow", "~~": "yellow", "xx": "red"}


@dataclass(frozen=True, slots=True)
class Row:
    """A step on the screen. `sign`: '' = it runs, ~~ = it waits, || = it is paused, xx = it failed.

    `told`: its first line has been printed; `busy`: it is still running."""

    label: str
    head: str
    began: float
    title: str = ""
    sign: str = ""
    words: str = ""
    told: bool = False
    busy: bool = True


def fits(out: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether this terminal can show lines that change."""
    coding = (out.encoding or "").lower().replace("-", "")
    return coding == "utf8" and environ.get("TERM", "") not in ("", "dumb", "unknown")


class Live(Plain):
    """Thread-safe."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._guard = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._ends: list[tuple[str, Outcome]] = []
        self._region: _Region | None = None
        self._plain = False

    def on_event(self, entry: Entry) -> None:
        with self._guard:
            name = self._name(entry)
            event = entry["event"]
            if event == "heartbeat":
                self._change(name, words=_heard(entry))
            if event in ("warning", "retry", "waiting"):
                self._tell(name)
            super().on_event(entry)
            if event in ("retry", "waiting"):
                self._change(name, sign="~~", words=entry["reason"] if event == "retry" else entry["message"])
            self._show()

    def skipped(self, task: str) -> None:
        with self._guard:
            super().skipped(task)

    def stopped(self, task: str, outcome: Outcome) -> None:
        """Printed when no step is running, so that it is last on the screen; until then shown in the row of the step."""
        with self._guard:
            self._tell(task)
            self._change(task, sign=SIGNS.get(outcome.status.value, "xx"), words=outcome.reason, busy=False)
            if outcome.status is Status.CANCELLED:
                self._drop(task)
            self._ends.append((task, outcome))
            self._show()

    def aside(self, task: str = "") -> None:
        with self._guard:
            self._tell(task)
            self._drop(task)
            self._hide()

    def close(self) -> None:
        with self._guard:
            for name in self._rows:
                self._tell(name)
            self._rows, self._plain = {}, True
            self._show()

    def _starts(self, name: str, entry: Entry) -> None:
        if self._plain:
            super()._starts(name, entry)
            return
        phase, of = entry.get("phase", ""), entry.get("of", 0)
        title = f"phase {phase} of {of}" if phase.isdigit() and of else ""
        title = ": ".join(word for word in (title, entry.get("title", "")) if word)
        label = name.removesuffix(f":{phase}") if phase and title else name
        label += f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
        self._rows = self._rows | {name: Row(label, self._heading(name, entry), time.monotonic(), title)}

    def _done(self, name: str, entry: Entry) -> None:
        self._tell(name)
        super()._done(name, entry)
        self._drop(name)

    def _tell(self, name: str) -> None:
        """Print the first line of a step, once, before any other line about it."""
        row = self._rows.get(name)
        if row is not None and not row.told:
            self._head(name, row.head)
            self._change(name, told=True)

    def _change(self, name: str, **new: Any) -> None:
        if name in self._rows and new.get("words", " "):
            self._rows = self._rows | {name: replace(self._rows[name], **new)}

    def _drop(self, name: str) -> None:
        self._rows = {other: row for other, row in self._rows.items() if other != name}

    def _show(self) -> None:
        """Show the region while a step is running; failures are printed after it is gone."""
        if any(row.busy for row in self._rows.values()):
            if self._region is None and not self._plain:
                self._open()
            return
        self._rows = {}
        self._hide()
        ends, self._ends = self._ends, []
        for task, outcome in ends:
            super().stopped(task, outcome)

    def _open(self) -> None:
        try:
            self._region = _Region(self._out, self, self._guard)
        except ImportError:
            self.close()
            return
        atexit.register(self._hide)

    def _hide(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            atexit.unregister(self._hide)
            region.close()

    def _say(self, line: str) -> None:
        if self._region is None:
            super()._say(line)
        else:
            self._region.say(clean(line))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        now = time.monotonic()
        for row in self._rows.values():
            yield _painted(row, now, max(1, options.max_width - 1))


class _Region:
    """The changing lines at the bottom of a terminal. The cursor stays visible, so that it is never lost.

    They are repainted by our own thread under the lock of the view: rich's would paint in the middle of other output.
    """

    def __init__(self, out: TextIO, content: Live, guard: threading.RLock) -> None:
        from rich.console import Console
        from rich.live import Live as Painter

        known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = Console(
            file=out, force_terminal=True, force_interactive=True, markup=False, emoji=False, highlight=False,
            legacy_windows=False, _environ=known,
        )  # fmt: skip
        self._painter = Painter(
            content, console=self._console, auto_refresh=False, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        with suppress(OSError, ValueError):
            self._painter.start(refresh=True)
            self._console.show_cursor(True)
        self._guard, self._closed = guard, threading.Event()
        threading.Thread(target=self._paint, daemon=True).start()

    def _paint(self) -> None:
        while not self._closed.wait(1 / _RATE):
            with self._guard, suppress(OSError, ValueError):
                if not self._closed.is_set():
                    self._painter.refresh()

    def say(self, line: str) -> None:
        from rich.text import Text

        with suppress(OSError, ValueError):
            self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError, ValueError):
            self._painter.stop()


def _heard(entry: Entry) -> str:
    """The last line of output, or the remaining wait."""
    if "waiting" in entry:
        return f"rate limited; continues in {format_duration(int(entry['waiting']) + 1)}"
    return last_line(entry.get("log", ""))


def _painted(row: Row, now: float, width: int) -> Text:
    from rich.text import Text

    sign = row.sign or _FRAMES[int(now * _RATE) % len(_FRAMES)]
    title = Text(_one_line(row.title))
    title.truncate(max(12, width // 3), overflow="ellipsis")
    line = Text(no_wrap=True, overflow="ellipsis", end="\n")
    line.append(f"{sign:<2} ", _STYLES[row.sign]).append(row.label, "bold")
    if title.plain:
        line.append("  ").append(title)
    line.append(f"  {format_duration(int(now - row.began))}", "dim")
    if row.words:
        line.append(f"  {_one_line(row.words)}", "dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _one_line(text: str) -> str:
    return clean(" ".join(text.split()))


TAIL = 65536
_SPEAKING = ("text", "content", "result", "command")


def last_line(path: str) -> str:
    """The last non-empty line of a log; for a stream of JSON objects, the last text in it."""
    text = runner.tail(path, TAIL) or runner.tail(path.removesuffix(".log") + ".err.log", TAIL)
    return next((shown for line in reversed(text.splitlines()) if (shown := _shown(line.strip()))), "")


def _shown(line: str) -> str:
    if line[:1] != "{":
        parts = [part for part in line.split("\\x0d") if part.strip()]  # a progress bar
        return parts[-1] if parts else ""
    try:
        found = json.loads(line)
    except ValueError:
        return ""
    return next((text.strip().splitlines()[-1] for text in reversed([*_texts(found)]) if text.strip()), "")


def _texts(value: object) -> Iterator[str]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str) and name in _SPEAKING:
            yield inner
        else:
            yield from _texts(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _texts(inner)
