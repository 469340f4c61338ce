"""Event log: a run's append-only `events.jsonl`.

A partial line of a killed writer is ignored by the reader and never joined with the next line.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.util import atomic_files, deferred, timestamps
from doflow.util.text import json_line

Entry = Mapping[str, Any]
Listener = Callable[[Entry], None]

#: events that a resume depends on: synced to disk before the run continues
DURABLE = frozenset({
    "run_started", "step_starting", "returned", "intent", "step_complete", "phase_starting", "phase_complete",
    "paused", "rate_limited", "error", "gate", "clarification", "pipeline_complete", "adopted", "approved",
    "rejected", "stopped", "answered", "forced", "reset", "review_started", "review_answer", "review_voided", "review_fixed",
    "waiting", "options",
})  # fmt: skip

#: for a step without cost: synced a moment later (see `deferred`)
LATER = "later"

#: events that are shown but not stored
SHOWN = frozenset({"heartbeat", "step_skipped", "resumed"})

Keep = Callable[[int, str, str], str]
_WRITTEN: set[str] = set()


class EventLog:
    """The writer. Threads may share it."""

    def __init__(self, path: Path, run: str, listen: Listener) -> None:
        self._path = path
        self._run = run
        self._listen = listen
        self._file: atomic_files.Appender | None = None
        self._guard = threading.Lock()
        self._copy: bytearray | None = None
        self._mark: tuple[int, ...] = ()

    def add(self, event: str, durable: Any = None, **data: Any) -> Entry:
        entry = {"event": event, "at": timestamps.now(), "run": self._run, **data}
        if event not in SHOWN:
            sync = event in DURABLE if durable is None else durable
            if sync is True:
                deferred.now()  # deferred writes reach the disk first
            with self._guard:
                file, text = self._open(), json_line(entry)
                # else another process wrote here: `restore` must notice
                ours = self._copy is None or file.mark() == self._mark
                file.add(text, sync is True)
                if self._copy is not None:
                    self._copy += text
                    self._mark = file.mark() if ours else self._mark
            if sync == LATER:
                deferred.later(self.sync)
        self._listen(entry)
        return entry

    def sync(self) -> None:
        """Sync everything added so far to disk."""
        with self._guard:
            if self._file is not None:
                self._file.sync()

    def arm(self) -> None:
        """Keep a copy of the log while agents work, so that `restore` can undo their changes to it."""
        with self._guard:
            if self._copy is None:
                self._mark = self._open().mark()
                self._copy = bytearray(self._path.read_bytes())

    def _open(self) -> atomic_files.Appender:
        if self._file is None:
            self._file = atomic_files.Appender(str(self._path))
            _WRITTEN.add(str(self._path))
        return self._file

    def restore(self, keep: Keep) -> bool:
        """If another process changed the log, keep that version with `keep` and write ours again."""
        with self._guard:
            if self._copy is None or self._file is None or self._file.mark() == self._mark:
                return False
            self._file.close()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(self._path):
                folder = atomic_files.open_folder(str(self._path.parent))
                try:
                    keep(folder, self._path.name, "/".join(self._path.parts[-4:]))
                finally:
                    os.close(folder)
            atomic_files.write_file(str(self._path), bytes(self._copy))
            self._file = atomic_files.Appender(str(self._path))
            self._mark = self._file.mark()
            return True

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                self._file.sync()
                self._file.close()
                self._file = None
                _WRITTEN.discard(str(self._path))


def is_being_written(path: str) -> bool:
    """Whether this process has this event log open."""
    return path in _WRITTEN


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every complete entry, oldest first; none if there is no event log yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise atomic_files.io_error("read", str(path), error) from error
    for raw in data.split(b"\n"):
        if raw:
            try:
                entry = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and "event" in entry:
                yield entry
