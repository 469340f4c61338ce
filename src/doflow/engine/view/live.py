"""The live view of a terminal: one line for each step at work and, above them for good, what `Plain` prints.

The lines at the bottom are painted by a thread of rich's, which comes in when the first step really runs. It reads
`_rows` without asking: the dict is never changed, only replaced.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from doflow.engine.view.plain import SIGNS, Entry, Plain
from doflow.flow.model import Outcome, Status
from doflow.util.records import dataclass, replace
from doflow.util.text import clean, span

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_RATE = 4
_STYLES = {"": "cyan", "||": "yellow", "~~": "yellow", "xx": "red"}


@dataclass(frozen=True, slots=True)
class Row:
    """A step on the screen. `sign`: '' = it runs, ~~ = it waits, || = it is paused, xx = it failed.

    `told`: the line that it began with is in the history; `busy`: it is still at work."""

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
    """Threads may share it."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._guard = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._ends: list[tuple[str, Outcome]] = []
        self._region: _Region | None = None
        self._plain = False

    def hear(self, entry: Entry) -> None:
        with self._guard:
            name = self._name(entry)
            event = entry["event"]
            if event == "heartbeat":
                self._change(name, words=_heard(entry))
            if event in ("warning", "retry", "waiting"):
                self._tell(name)
            super().hear(entry)
            if event in ("retry", "waiting"):
                self._change(name, sign="~~", words=entry["reason"] if event == "retry" else entry["message"])
            self._show()

    def skipped(self, task: str) -> None:
        with self._guard:
            super().skipped(task)

    def stopped(self, task: str, outcome: Outcome) -> None:
        """Said when nothing is at work any more, so that it stands last on the screen; till then its line says it."""
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
        """Write the line that a step began with into the history, once, before anything else that is said of it."""
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
        """The region is on the screen while a step is at work; what ended badly is said below it, when it is gone."""
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
    """The changing lines at the bottom of a terminal. The cursor stays visible: however we end, it is not lost.

    They are painted anew by a thread of ours, under the guard of the view: rich's own would paint between two halves of
    somebody else's line.
    """

    def __init__(self, out: TextIO, content: Live, guard: threading.RLock) -> None:
        import os

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
    """A sign of life: what the program said last, or how long it is still to wait."""
    if "waiting" in entry:
        return f"rate limited; goes on by itself in {span(int(entry['waiting']) + 1)}"
    from doflow.engine.view import last_output as overhear

    return overhear.last_words(entry.get("log", ""))


def _painted(row: Row, now: float, width: int) -> Text:
    from rich.text import Text

    sign = row.sign or _FRAMES[int(now * _RATE) % len(_FRAMES)]
    title = Text(_one_line(row.title))
    title.truncate(max(12, width // 3), overflow="ellipsis")
    line = Text(no_wrap=True, overflow="ellipsis", end="\n")
    line.append(f"{sign:<2} ", _STYLES[row.sign]).append(row.label, "bold")
    if title.plain:
        line.append("  ").append(title)
    line.append(f"  {span(int(now - row.began))}", "dim")
    if row.words:
        line.append(f"  {_one_line(row.words)}", "dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _one_line(text: str) -> str:
    return clean(" ".join(text.split()))
