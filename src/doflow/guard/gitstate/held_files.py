"""Small files held whole: a folder as it is, its bytes in memory (and in one file, for the start after a kill).

For what steers git and doflow itself: it can be put back without asking git, and though its copies on disk are gone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from doflow.guard.quarantine import Keep
from doflow.guard.snapshot import entries as contents, walk as snapshot
from doflow.guard.snapshot.entries import Change, Item, Snapshot
from doflow.util import atomic_files as files
from doflow.util.records import dataclass

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Area:
    """A folder of which `only` says what counts; `shown` is its name in messages."""

    folder: str
    shown: str
    only: Callable[[str], bool]


class Held:
    """One area as it was."""

    def __init__(self, area: Area, data: dict[str, bytes]) -> None:
        self.area = area
        self.base = Snapshot(0, {})
        self._data = data

    def take(self) -> None:
        """As it is now; only what was touched is read again."""
        self.base = self.now()
        for path, item in self.base.items.items():
            if item.kind == "file" and item.value not in self._data:
                self._data[item.value] = _read(os.path.join(self.area.folder, path))

    def part(self, whole: Held) -> None:
        """As it was, too, of which more was held until now."""
        items = {path: item for path, item in whole.base.items.items() if self.area.only(path)}
        self.base = Snapshot(whole.base.taken, items, frozenset(filter(self.area.only, whole.base.folders)))

    def now(self) -> Snapshot:
        if not os.path.isdir(self.area.folder):
            return Snapshot(0, {})
        return snapshot.take(self.area.folder, before=self.base, only=self.area.only)

    def follow(self, paths: tuple[str, ...]) -> None:
        """These were changed by ourselves: from now on they are as they are now."""
        now = self.now()
        items = {path: item for path, item in self.base.items.items() if path not in paths}
        items |= {path: now.items[path] for path in paths if path in now.items}
        self.base = Snapshot(self.base.taken, items, self.base.folders | now.folders)
        for path in paths:
            if path in items and items[path].kind == "file":
                self._data.setdefault(items[path].value, _read(os.path.join(self.area.folder, path)))

    def restore(self, changes: tuple[Change, ...], keep: Keep) -> None:
        os.makedirs(self.area.folder, exist_ok=True)
        snapshot.restore(self.area.folder, self.base, changes, "", self._data.__getitem__, keep)
        for change in changes:
            if change.path == "index" and change.path in self.base.items:
                _as_old(os.path.join(self.area.folder, change.path), self.base.items[change.path])

    def values(self) -> frozenset[str]:
        return frozenset(item.value for item in self.base.items.values() if item.kind == "file")

    def plain(self) -> dict[str, object]:
        rows = [(name, it.kind, it.mode, it.value, it.blob, it.stat) for name, it in self.base.items.items()]
        folders = sorted(self.base.folders)
        return {"folder": self.area.folder, "taken": self.base.taken, "items": rows, "folders": folders}

    def load(self, told: Mapping[str, list[list[object]]]) -> None:
        rows = {str(row[0]): contents.item(row) for row in told["items"]}
        self.base = Snapshot(int(str(told["taken"])), rows, frozenset(map(str, told["folders"])))


def _as_old(path: str, item: Item) -> None:
    """git tells by the time of its index which files it must look at again."""
    os.utime(path, ns=(item.stat[1], item.stat[1]), follow_symlinks=False)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        raise files.broke("read", path, error) from error
    with os.fdopen(fd, "rb") as stream:
        return stream.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""
