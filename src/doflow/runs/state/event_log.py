"""What happened: one run's append-only `events.jsonl`, and reading it back.

A line that a killed writer left torn is dropped by the reader and never joined by the next line.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.util import atomic_files as files, deferred as idle
from doflow.util.timestamps import line as line, now as now

Entry = Mapping[str, Any]
Listener = Callable[[Entry], None]

#: events without which a resume would pay or lose something: on disk before we go on
DURABLE = frozenset({
    "run_started", "step_starting", "returned", "intent", "step_complete", "phase_starting", "phase_complete",
    "paused", "rate_limited", "error", "gate", "clarification", "pipeline_complete", "adopted", "approved",
    "rejected", "stopped", "answered", "forced", "reset", "review_started", "review_answer", "review_voided", "review_fixed",
    "waiting", "options",
})  # fmt: skip

#: for a step that cost nothing: on disk a moment later (see `idle`)
LATER = "later"

#: events that are shown but not kept: they would repeat with every look at a run
SHOWN = frozenset({"heartbeat", "step_skipped", "resumed"})

Keep = Callable[[int, str, str], str]
_WRITTEN: set[str] = set()


class Ledger:
    """The writer. Threads may share it."""

    def __init__(self, path: Path, run: str, listen: Listener) -> None:
        self._path = path
        self._run = run
        self._listen = listen
        self._file: files.Appender | None = None
        self._guard = threading.Lock()
        self._copy: bytearray | None = None
        self._mark: tuple[int, ...] = ()

    def add(self, event: str, durable: Any = None, **data: Any) -> Entry:
        entry = {"event": event, "at": now(), "run": self._run, **data}
        if event not in SHOWN:
            sync = event in DURABLE if durable is None else durable
            if sync is True:
                idle.now()  # what was put off is on the disk before this is
            with self._guard:
                file, text = self._open(), line(entry)
                ours = self._copy is None or file.mark() == self._mark  # else somebody wrote here: `mend` is to see it
                file.add(text, sync is True)
                if self._copy is not None:
                    self._copy += text
                    self._mark = file.mark() if ours else self._mark
            if sync == LATER:
                idle.later(self.sync)
        self._listen(entry)
        return entry

    def sync(self) -> None:
        """All that was added is on the disk when this returns."""
        with self._guard:
            if self._file is not None:
                self._file.sync()

    def arm(self) -> None:
        """From now on we know what it must hold: agents are at work, and it is not for them to write here."""
        with self._guard:
            if self._copy is None:
                self._mark = self._open().mark()
                self._copy = bytearray(self._path.read_bytes())

    def _open(self) -> files.Appender:
        if self._file is None:
            self._file = files.Appender(str(self._path))
            _WRITTEN.add(str(self._path))
        return self._file

    def mend(self, keep: Keep) -> bool:
        """If somebody else wrote here: that goes aside, and all that we wrote is there again."""
        with self._guard:
            if self._copy is None or self._file is None or self._file.mark() == self._mark:
                return False
            self._file.close()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(self._path):
                folder = files.open_folder(str(self._path.parent))
                try:
                    keep(folder, self._path.name, "/".join(self._path.parts[-4:]))
                finally:
                    os.close(folder)
            files.write(str(self._path), bytes(self._copy))
            self._file = files.Appender(str(self._path))
            self._mark = self._file.mark()
            return True

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                self._file.sync()
                self._file.close()
                self._file = None
                _WRITTEN.discard(str(self._path))


def writes(path: str) -> bool:
    """Whether a ledger of this process writes there."""
    return path in _WRITTEN


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole entry, oldest first; none if there is no ledger yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise files.broke("read", str(path), error) from error
    for raw in data.split(b"\n"):
        if raw:
            try:
                entry = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and "event" in entry:
                yield entry
