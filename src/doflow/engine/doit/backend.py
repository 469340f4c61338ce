"""doit's memory: a backend of our own, sqlite in WAL mode, durable after every task.

doit's stock backends reach the disk only when a run ends; a killed run forgets everything. This one commits a
moment after every finished task (see `idle`; until then lock and ledger know what is done). Contract: get, set, in_,
remove, remove_all, dump, name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from doflow.util import deferred as idle

#: a task that a person told doit to forget, as opposed to one nobody knows about
FORGOTTEN = "doflow:forgotten"


class Backend:
    """One row per task, decoded when first asked for."""

    desc = "doflow: sqlite, durable after every task"
    running = False  # set by the run command: a removal then means failure, not `doit forget`
    asleep = False  # set when stamps answer for every task: then nothing needs to be read

    def __init__(self, name: str, codec: Any, *, module_name: str | None = None) -> None:
        self.name = name
        self._codec = codec
        self._guard = threading.RLock()
        self._rows: dict[str, dict[str, Any]] = {}
        self._dirty: set[str] = set()
        self._base: Any = None
        self._read: dict[str, str] | None = None

    @property
    def _raw(self) -> dict[str, str]:
        if self._read is None:
            self._read = self._open() if os.path.exists(self.name) else {}
        return self._read

    def get(self, task_id: str, dependency: str) -> Any:
        if Backend.asleep:
            return None
        with self._guard:
            row = self._row(task_id)
            return None if row is None else row.get(dependency)

    def set(self, task_id: str, dependency: str, value: Any) -> None:
        with self._guard:
            row = self._row(task_id)
            if row is None or FORGOTTEN in row:
                row = self._rows[task_id] = {}
            row[dependency] = value
            self._dirty.add(task_id)
            if dependency == "deps:":  # the last field doit writes for a finished task
                idle.later(self._soon)

    def in_(self, task_id: str) -> bool:
        with self._guard:
            row = self._row(task_id)
            return row is not None and FORGOTTEN not in row

    def remove(self, task_id: str) -> None:
        with self._guard:
            known = task_id in self._rows or task_id in self._raw
            if Backend.running and not known:
                return
            self._rows[task_id] = {} if Backend.running else {FORGOTTEN: True}
            self._raw.pop(task_id, None)
            self._dirty.add(task_id)
            self._commit()
        if not Backend.running:
            self._unstamp()

    def drop(self, task_ids: Iterable[str]) -> None:
        """Take rows away without a mark: lock and ledger alone decide then."""
        with self._guard:
            for task_id in task_ids:
                self._raw.pop(task_id, None)
                self._rows[task_id] = {}
                self._dirty.add(task_id)
            self._commit()

    def remove_all(self) -> None:
        with self._guard:
            for task_id in {*self._raw, *self._rows}:
                self.remove(task_id)

    def dump(self) -> None:
        with self._guard:
            self._commit()
            if self._base is not None:
                self._base.close()
                self._base = None

    def _soon(self) -> None:
        """What goes wrong here is tried again, and said, at the end."""
        import sqlite3

        with self._guard, suppress(sqlite3.Error):
            self._commit()

    def _row(self, task_id: str) -> dict[str, Any] | None:
        row = self._rows.get(task_id)
        if row is None and task_id in self._raw:
            row = self._rows[task_id] = self._codec.decode(self._raw[task_id])
        return row

    def _open(self) -> dict[str, str]:
        import sqlite3

        try:
            self._base = self._connect()
            return dict(self._base.execute("select task_id, task_data from doit"))
        except sqlite3.DatabaseError:  # torn or garbage: kept aside; lock and ledger know what is done
            for suffix in ("", "-wal", "-shm"):
                if os.path.exists(self.name + suffix):
                    os.replace(self.name + suffix, f"{self.name}{suffix}.bad")
            self._base = self._connect()
            return {}

    def _connect(self) -> Any:
        import sqlite3

        os.makedirs(os.path.dirname(self.name) or ".", exist_ok=True)
        base = sqlite3.connect(self.name, timeout=30, isolation_level=None, check_same_thread=False)
        base.execute("pragma journal_mode=wal")
        base.execute("pragma synchronous=normal")  # what a power cut takes from here the ledger still knows
        base.execute(
            "create table if not exists doit (task_id text primary key, task_data text not null) without rowid"
        )
        return base

    def _commit(self) -> None:
        if not self._dirty:
            return
        if self._base is None:
            self._base = self._connect()
        gone = [(name,) for name in self._dirty if not self._rows[name]]
        kept = [(name, self._codec.encode(self._rows[name])) for name in self._dirty if self._rows[name]]
        with self._base:
            self._base.execute("begin immediate")
            if gone:
                self._base.executemany("delete from doit where task_id=?", gone)
            if kept:
                self._base.executemany("insert or replace into doit values (?,?)", kept)
        for name in self._dirty:  # a text is smaller than what it says, and few are asked for again
            del self._rows[name]
        self._raw.update(kept)
        self._dirty.clear()

    def _unstamp(self) -> None:
        """A forgotten task ends the fast answer "nothing to do"."""
        folder = os.path.join(os.path.dirname(self.name), "stamps")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            os.unlink(os.path.join(folder, name))
