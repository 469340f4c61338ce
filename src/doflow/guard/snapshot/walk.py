"""What the files of a project are, by our own walk: taken before a step, compared after it, put back where wrong.

git is never asked what changed. Links are never followed: every folder is reached by descriptor.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from doflow.guard.snapshot import entries as contents
from doflow.guard.snapshot.entries import Change, Item, Snapshot
from doflow.guard.snapshot.restore import read, restore
from doflow.util import atomic_files as files
from doflow.util.globs import matches

__all__ = ["Change", "Item", "Snapshot", "compare", "matches", "read", "restore", "take"]

_RACY_NS = 20_000_000
_DEEPEST = 200
_RESTLESS = frozenset(("objects", "lfs", "logs", "index", "index.lock", "FETCH_HEAD", "ORIG_HEAD", "COMMIT_EDITMSG"))


def take(
    root: str | os.PathLike[str],
    skip: tuple[str, ...] = (),
    store: str | os.PathLike[str] = "",
    in_git: Mapping[str, tuple[str, str]] | None = None,
    before: Snapshot | None = None,
    only: Callable[[str], bool] | None = None,
) -> Snapshot:
    """Walk the project. `skip` are paths that are passed over (with all below), as is what `only` says no to; an empty
    `store` keeps no bytes.

    What has the stat of `before` is not read again, unless it was touched while that snapshot was taken. Bytes that
    git holds under the very same path (`in_git`: path -> mode, blob id) are not stored.
    """
    walk = _Walk(skip, os.fspath(store), in_git or {}, before, only)
    taken = time.time_ns()
    try:
        walk.folder(files.open_folder(os.fspath(root)), "", 0)
    except OSError as error:
        raise files.broke("take a snapshot of", os.fspath(root), error) from error
    if walk.stored:
        files.syncfs(store)
    return Snapshot(taken, walk.items, frozenset(walk.folders))


class _Walk:
    """One walk; collects items and folders."""

    def __init__(
        self,
        skip: Iterable[str],
        store: str,
        in_git: Mapping[str, tuple[str, str]],
        before: Snapshot | None,
        only: Callable[[str], bool] | None,
    ) -> None:
        self.only = only
        self.skip = frozenset(path.strip("/") for path in skip) | {".doflow"}
        self.store = store
        self.in_git = in_git
        self.before = before.items if before else {}
        self.racy = before.taken - _RACY_NS if before else 0
        self.items: dict[str, Item] = {}
        self.folders: set[str] = set()
        self.stored = False

    def folder(self, fd: int, rel: str, depth: int) -> None:
        """Everything in an open folder, which is closed at the end."""
        prefix = f"{rel}/" if rel else ""
        before, items, racy = self.before, self.items, self.racy
        try:
            for name, status in _listing(fd):
                path = prefix + name
                known = before.get(path)
                if known is not None:  # most files are as they were: this is what a large project costs
                    size, modified, changed, inode = known.stat
                    same = changed == status.st_ctime_ns and modified == status.st_mtime_ns and size == status.st_size
                    if (
                        same
                        and inode == status.st_ino
                        and changed < racy > modified
                        and (known.blob or self._kept(known))
                    ):
                        items[path] = known
                        continue
                if path not in self.skip and (self.only is None or self.only(path)):
                    self._entry(fd, name, path, status, depth)
        finally:
            os.close(fd)

    def _entry(self, fd: int, name: str, path: str, status: os.stat_result, depth: int) -> None:
        if name == ".git" and (name == path or not self._nested(fd, path, status, depth)):
            return
        if stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
            self._inner(fd, name, path, depth)
        else:
            self._item(fd, name, path, status)

    def _nested(self, fd: int, path: str, status: os.stat_result, depth: int) -> bool:
        """A repository inside the project: of its git folder what steers it; False = that is all there is to see."""
        if not stat.S_ISDIR(status.st_mode):
            return True
        self.folders.add(path)
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            inner = files.open_folder(".git", dir_fd=fd)
            only, self.only = self.only, _steers
            try:
                self.folder(inner, path, depth + 1)
            finally:
                self.only = only
        return False

    def _inner(self, fd: int, name: str, path: str, depth: int) -> None:
        self.folders.add(path)
        try:
            inner = files.open_folder(name, dir_fd=fd)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            return  # gone, swapped or closed to us: its files count as missing
        self.folder(inner, path, depth + 1)

    def _item(self, fd: int, name: str, path: str, status: os.stat_result) -> None:
        blob = self.in_git.get(path, ("", ""))[1]
        item = contents.inspect(fd, name, status, self.store, blob)
        if item is not None:
            self.items[path] = item
            self.stored = self.stored or (bool(self.store) and item.kind == "file" and not item.blob)

    def _kept(self, known: Item) -> bool:
        """What git does not hold is in the store, if there is one."""
        if known.kind != "file":
            return True
        if known.value.startswith("unreadable"):
            return False
        return not self.store or os.path.exists(contents.stored(self.store, known.value))


def _steers(path: str) -> bool:
    """Of a nested git folder: not its objects, nor what looking at it (`git status`) changes."""
    return path.rpartition(".git/")[2].partition("/")[0] not in _RESTLESS


def _listing(fd: int) -> list[tuple[str, os.stat_result]]:
    """Names with their stat; what vanishes meanwhile is left out."""
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    return found


def compare(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """What became of each path, in order of the paths. A repository that is new inside the project is one change."""
    new = tuple(f"{path}/" for path in after.folders - before.folders if path.endswith("/.git"))
    changes = [Change(path.rstrip("/"), "added") for path in new]
    old = before.items
    touched = [path for path, item in after.items.items() if old.get(path) is not item]
    touched += old.keys() - after.items.keys()
    for path in sorted(touched):
        kind = _became(old.get(path), after.items.get(path))
        if kind and not (new and path.startswith(new)):
            changes.append(Change(path, kind))
    return tuple(changes)


def _became(old: Item | None, new: Item | None) -> str:
    if old is None or new is None:
        return "deleted" if new is None else "added"
    if old is new or old.equals(new):
        return ""
    if old.kind != new.kind:
        return "type"
    return "changed" if old.value != new.value else "mode"
