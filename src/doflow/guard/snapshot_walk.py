"""The files of a project by our own walk: a snapshot before a step, compared after it, reverted where needed.

git is never asked what changed. Links are never followed: every folder is reached by descriptor.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from doflow.guard import snapshot_entries
from doflow.guard.quarantine import Keep
from doflow.guard.snapshot_entries import Change, Item, Snapshot
from doflow.util import atomic_files, state_folder
from doflow.util.errors import WorldError
from doflow.util.globs import matches

__all__ = ["Change", "Item", "Snapshot", "compare", "matches", "read_item", "restore", "take_snapshot"]

_RACY_NS = 20_000_000
_DEEPEST = 200
_RESTLESS = frozenset(("objects", "lfs", "logs", "index", "index.lock", "FETCH_HEAD", "ORIG_HEAD", "COMMIT_EDITMSG"))


def take_snapshot(
    root: str | os.PathLike[str],
    skip: tuple[str, ...] = (),
    store: str | os.PathLike[str] = "",
    in_git: Mapping[str, tuple[str, str]] | None = None,
    before: Snapshot | None = None,
    only: Callable[[str], bool] | None = None,
) -> Snapshot:
    """Walk the project. `skip` are paths that are skipped (with everything below), like those that `only` rejects; with an
    empty `store` no bytes are kept.

    A file with the stat of `before` is not read again, unless it was touched while that snapshot was taken. Bytes that
    git holds under the same path (`in_git`: path -> mode, blob id) are not stored.
    """
    walk = _Walk(skip, os.fspath(store), in_git or {}, before, only)
    taken = time.time_ns()
    try:
        walk.folder(atomic_files.open_folder(os.fspath(root)), "", 0)
    except OSError as error:
        raise atomic_files.io_error("take a snapshot of", os.fspath(root), error) from error
    if walk.stored:
        atomic_files.syncfs(store)
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
        self.skip = frozenset(path.strip("/") for path in skip) | {state_folder.NAME}
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
                if known is not None:  # most files are unchanged: this is the cost of a large project
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
        """A nested repository: of its git folder only the files that control it; False = don't descend any further."""
        if not stat.S_ISDIR(status.st_mode):
            return True
        self.folders.add(path)
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            inner = atomic_files.open_folder(".git", dir_fd=fd)
            only, self.only = self.only, _steers
            try:
                self.folder(inner, path, depth + 1)
            finally:
                self.only = only
        return False

    def _inner(self, fd: int, name: str, path: str, depth: int) -> None:
        self.folders.add(path)
        try:
            inner = atomic_files.open_folder(name, dir_fd=fd)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            return  # gone, replaced or not readable: its files count as missing
        self.folder(inner, path, depth + 1)

    def _item(self, fd: int, name: str, path: str, status: os.stat_result) -> None:
        blob = self.in_git.get(path, ("", ""))[1]
        item = snapshot_entries.inspect(fd, name, status, self.store, blob)
        if item is not None:
            self.items[path] = item
            self.stored = self.stored or (bool(self.store) and item.kind == "file" and not item.blob)

    def _kept(self, known: Item) -> bool:
        """What git does not hold is in the store, if there is one."""
        if known.kind != "file":
            return True
        if known.value.startswith("unreadable"):
            return False
        return not self.store or os.path.exists(snapshot_entries.stored(self.store, known.value))


def _steers(path: str) -> bool:
    """Of a nested git folder: not its objects, nor what `git status` itself changes."""
    return path.rpartition(".git/")[2].partition("/")[0] not in _RESTLESS


def _listing(fd: int) -> list[tuple[str, os.stat_result]]:
    """Names with their stat; entries that vanish meanwhile are left out."""
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    return found


def compare(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """The changes, ordered by path. A new nested repository is one change."""
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


_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Job:
    root: str
    before: Snapshot
    store: str
    read_blob: Callable[[str], bytes]
    keep: Keep


def restore(
    root: str | os.PathLike[str],
    before: Snapshot,
    changes: Iterable[Change],
    store: str | os.PathLike[str],
    read_blob: Callable[[str], bytes],
    keep: Keep,
) -> None:
    """Revert exactly the paths of `changes` to `before`. `read_blob` returns the bytes of a git blob by id (without a
    `store`: of every file by its sha256), `keep` (a Quarantine, or the result of its `about`) takes what is displaced.

    Paths that cannot be reverted are named in one WorldError at the end, after all others are done.
    """
    job = _Job(os.fspath(root), before, os.fspath(store), read_blob, keep)
    paths = sorted({change.path for change in changes})
    failures = []
    for path in (*(p for p in paths if p not in before.items), *(p for p in paths if p in before.items)):
        try:
            _path(job, path)
        except (OSError, WorldError) as error:
            failures.append(f"{path!r} ({_words(error)})")
    if paths:
        atomic_files.syncfs(job.root)
    if failures:
        raise WorldError(
            "could not be reverted to their state before the step: " + ", ".join(failures),
            hint="fix the cause (disk space, permissions) and run again; see doflow quarantine list",
        )


def read_item(wanted: Item, store: str | os.PathLike[str], read_blob: Callable[[str], bytes]) -> bytes:
    """The bytes of a file as a snapshot holds them."""
    return b"".join(_bytes(wanted, os.fspath(store), read_blob))


def _words(error: OSError | WorldError) -> str:
    return error.message if isinstance(error, WorldError) else error.strerror or str(error)


def _path(job: _Job, path: str) -> None:
    wanted = job.before.items.get(path)
    folder, _, name = path.rpartition("/")
    fd = _open(job, folder, make=wanted is not None)
    if fd < 0:
        return
    try:
        if wanted is None:
            _away(job, fd, name, path)
        else:
            _back(job, fd, name, path, wanted)
    finally:
        os.close(fd)
    if wanted is None:
        _tidy(job, folder)


def _open(job: _Job, folder: str, make: bool) -> int:
    """The folder's descriptor; with `make` anything in its place is displaced, else -1 if it does not exist."""
    fd = atomic_files.open_folder(job.root)
    so_far = ""
    for name in folder.split("/") if folder else ():
        so_far = f"{so_far}/{name}" if so_far else name
        try:
            inner = _step(job, fd, name, so_far, make)
        finally:
            os.close(fd)
        if inner < 0:
            return -1
        fd = inner
    return fd


def _step(job: _Job, fd: int, name: str, path: str, make: bool) -> int:
    try:
        return atomic_files.open_folder(name, dir_fd=fd)
    except PermissionError:
        open_to_us = stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode) | stat.S_IRWXU
        os.chmod(name, open_to_us, dir_fd=fd)
        return atomic_files.open_folder(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        if not make:
            return -1
        if error.errno != errno.ENOENT:
            job.keep(fd, name, path)
    os.mkdir(name, dir_fd=fd)
    return atomic_files.open_folder(name, dir_fd=fd)


def _look(fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _away(job: _Job, fd: int, name: str, path: str) -> None:
    """Nothing was here before the step: displace what is here now."""
    status = _look(fd, name)
    if status is not None and not (stat.S_ISDIR(status.st_mode) and path in job.before.folders):
        job.keep(fd, name, path)


def _back(job: _Job, fd: int, name: str, path: str, wanted: Item) -> None:
    status = _look(fd, name)
    if status is not None:
        now = snapshot_entries.inspect(fd, name, status)
        if wanted.equals(now):
            return
        if now is not None and wanted.kind == now.kind == "file" and wanted.value == now.value:
            _chmod(fd, name, wanted.mode)
            return
    spare = _prepare(job, fd, path, wanted)
    if status is not None:
        _clear(job, fd, name, path, status)
    if spare:
        os.rename(spare, name, src_dir_fd=fd, dst_dir_fd=fd)


def _chmod(fd: int, name: str, mode: int) -> None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    except PermissionError:
        os.chmod(name, mode, dir_fd=fd)
        return
    try:
        os.fchmod(file, mode)
    finally:
        os.close(file)


def _prepare(job: _Job, fd: int, path: str, wanted: Item) -> str:
    """Create the wanted entry under a temporary name first: if the disk is full, nothing has been displaced yet."""
    spare = f".doflow-{os.urandom(8).hex()}.tmp"
    try:
        if wanted.kind == "link":
            os.symlink(wanted.value, spare, dir_fd=fd)
        elif wanted.kind == "file":
            _fill(job, fd, spare, path, wanted)
        elif wanted.value == str(stat.S_IFIFO):
            os.mkfifo(spare, dir_fd=fd)
        else:
            return ""  # a socket or a device belongs to a running program: it cannot be created again
    except BaseException:
        if _look(fd, spare) is not None:
            os.unlink(spare, dir_fd=fd)
        raise
    return spare


def _fill(job: _Job, fd: int, spare: str, path: str, wanted: Item) -> None:
    total = hashlib.sha256()
    file = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
    try:
        for chunk in _bytes(wanted, job.store, job.read_blob):
            total.update(chunk)
            atomic_files.write_all(file, chunk)
        os.fchmod(file, wanted.mode)
    finally:
        os.close(file)
    if total.hexdigest() != wanted.value:
        raise WorldError(f"the stored copy of {path!r} is not what the file held", hint="doflow verify")


def _bytes(wanted: Item, store: str, read_blob: Callable[[str], bytes]) -> Iterable[bytes]:
    if wanted.blob or not store:
        yield read_blob(wanted.blob or wanted.value)
        return
    if wanted.value.startswith("unreadable"):
        raise WorldError("it could not be read before the step", hint="make it readable")
    file = os.open(snapshot_entries.stored(store, wanted.value), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while chunk := os.read(file, _CHUNK):
            yield chunk
    finally:
        os.close(file)


def _clear(job: _Job, fd: int, name: str, path: str, status: os.stat_result) -> None:
    """Free the name. A new empty folder holds nothing worth keeping."""
    if stat.S_ISDIR(status.st_mode):
        try:
            os.rmdir(name, dir_fd=fd)
            return
        except OSError:
            pass  # not empty: displaced as a whole
    job.keep(fd, name, path)


def _tidy(job: _Job, folder: str) -> None:
    """Remove folders that are new since the step and empty now."""
    while folder and folder not in job.before.folders:
        above, _, name = folder.rpartition("/")
        fd = _open(job, above, make=False)
        if fd < 0:
            return
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            return  # not empty, or gone already
        finally:
            os.close(fd)
        folder = above
