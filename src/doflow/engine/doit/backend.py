"""doit's state database: a backend in SQLite (WAL mode), durable after every task.

The inputs of a step are not stored here: doit gets them from doflow.lock (`judged`).

doit's own backends are written when a run ends, so a killed run loses everything. This one commits shortly after every
finished task (see `deferred`; until then the lock file and the event log know what is done). Contract: get, set, in_,
remove, remove_all, dump, name.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from doit import Globals
from doit.task import Task

from doflow.engine.doit.dependencies import Judgement
from doflow.util import deferred

#: marks a task forgotten with `doit forget`, as opposed to an unknown one
FORGOTTEN = "doflow:forgotten"
#: what doit stores for a task besides the states of its files
_KEPT = frozenset({"_values_:", "result:", "ignore:", FORGOTTEN})


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
        self._judged: dict[str, Judgement] = {}
        self._base: Any = None
        self._read: dict[str, str] | None = None

    @property
    def _raw(self) -> dict[str, str]:
        if self._read is None:
            self._read = self._open() if os.path.exists(self.name) else {}
        return self._read

    def judged(self, task_id: str, judgement: Judgement) -> None:
        """Store the comparison of a step with its record; doit then uses it for the files of the task."""
        self._judged[task_id] = Judgement() if Backend.running or not judgement.reasons else judgement

    def get(self, task_id: str, dependency: str) -> Any:
        if Backend.asleep:
            return None
        judgement = self._judged.get(task_id)
        if judgement is not None and dependency not in _KEPT:
            return {"deps:": judgement.former, "checker:": None}.get(dependency, judgement.state(dependency))
        with self._guard:
            row = self._row(task_id)
            return None if row is None else row.get(dependency)

    def set(self, task_id: str, dependency: str, value: Any) -> None:
        with self._guard:
            row = self._row(task_id)
            if row is None or FORGOTTEN in row:
                row = self._rows[task_id] = {}
            if task_id not in self._judged or dependency in _KEPT:
                row[dependency] = value
            self._dirty.add(task_id)
            if dependency == "deps:":  # the last field doit writes for a finished task
                deferred.later(self._soon)

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
        """Remove rows without a mark: the lock file and the event log decide then."""
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
        """Commit; errors are retried, and reported, at the end."""
        with self._guard, suppress(sqlite3.Error):
            self._commit()

    def _row(self, task_id: str) -> dict[str, Any] | None:
        row = self._rows.get(task_id)
        if row is None and task_id in self._raw:
            row = self._rows[task_id] = self._codec.decode(self._raw[task_id])
        return row

    def _open(self) -> dict[str, str]:
        try:
            self._base = self._connect()
            return dict(self._base.execute("select task_id, task_data from doit"))
        except sqlite3.DatabaseError:  # corrupt: renamed; the lock file and the event log know what is done
            for suffix in ("", "-wal", "-shm"):
                if os.path.exists(self.name + suffix):
                    os.replace(self.name + suffix, f"{self.name}{suffix}.bad")
            self._base = self._connect()
            return {}

    def _connect(self) -> Any:
        os.makedirs(os.path.dirname(self.name) or ".", exist_ok=True)
        base = sqlite3.connect(self.name, timeout=30, isolation_level=None, check_same_thread=False)
        base.execute("pragma journal_mode=wal")
        base.execute("pragma synchronous=normal")  # after a power cut the event log still knows
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
        for name in self._dirty:  # the encoded text is smaller, and few rows are read again
            del self._rows[name]
        self._raw.update(kept)
        self._dirty.clear()

    def _unstamp(self) -> None:
        """A forgotten task invalidates the up-to-date stamps."""
        folder = os.path.join(os.path.dirname(self.name), "stamps")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            os.unlink(os.path.join(folder, name))


class UpToDate:
    """The one up-to-date object of a task; doit calls it, `doit info` prints it."""

    def __init__(self, judge: Callable[[Mapping[str, Any]], Judgement]) -> None:
        self._judge = judge
        self._reasons: tuple[str, ...] = ()

    def __call__(self, task: Task, values: Mapping[str, Any]) -> bool:
        judgement = self._judge(values)
        self._reasons = judgement.reasons
        memory = Globals.dep_manager.backend
        if not isinstance(memory, Backend):  # another backend, from the command line: it does not know our files
            task.file_dep = set()
        else:
            memory.judged(task.name, judgement)
            if judgement.files is not None:  # earlier steps may have created or removed some
                task.file_dep = set(judgement.files)
        return not self._reasons

    def __repr__(self) -> str:
        return f"stale: {'; '.join(self._reasons)}" if self._reasons else "up to date"
