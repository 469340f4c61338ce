"""Putting paths back as a snapshot says they were; whatever is displaced by it goes into the quarantine.

Every folder is opened by descriptor without following links, and each path is looked at again before it is touched, so
a second pass after a crash finishes the first.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable

from doflow.guard.quarantine import Keep
from doflow.guard.snapshot import entries as contents
from doflow.guard.snapshot.entries import Change, Item, Snapshot
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import dataclass

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
    """Put exactly the paths of `changes` back as in `before`. `read_blob` gives the bytes of a git blob by id (without
    a `store`: of every file by its sha256), `keep` (a Quarantine, or what its `about` gives) takes what is displaced.

    What cannot be put back is named in one WorldError at the end, after everything else is in place.
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
        files.syncfs(job.root)
    if failures:
        raise WorldError(
            "could not be put back as before the step: " + ", ".join(failures),
            hint="mend what is named here (disk space, permissions) and run again; doflow quarantine list",
        )


def read(wanted: Item, store: str | os.PathLike[str], read_blob: Callable[[str], bytes]) -> bytes:
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
    """The folder's descriptor; what stands in its way is displaced (`make`), or -1 says that nothing is there."""
    fd = files.open_folder(job.root)
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
        return files.open_folder(name, dir_fd=fd)
    except PermissionError:
        open_to_us = stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode) | stat.S_IRWXU
        os.chmod(name, open_to_us, dir_fd=fd)
        return files.open_folder(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        if not make:
            return -1
        if error.errno != errno.ENOENT:
            job.keep(fd, name, path)
    os.mkdir(name, dir_fd=fd)
    return files.open_folder(name, dir_fd=fd)


def _look(fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _away(job: _Job, fd: int, name: str, path: str) -> None:
    """Nothing was here before the step: whatever is here now is displaced."""
    status = _look(fd, name)
    if status is not None and not (stat.S_ISDIR(status.st_mode) and path in job.before.folders):
        job.keep(fd, name, path)


def _back(job: _Job, fd: int, name: str, path: str, wanted: Item) -> None:
    status = _look(fd, name)
    if status is not None:
        now = contents.inspect(fd, name, status)
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
    """Make the wanted thing under a spare name first: with a full disk nothing has been displaced yet."""
    spare = f".doflow-{os.urandom(8).hex()}.tmp"
    try:
        if wanted.kind == "link":
            os.symlink(wanted.value, spare, dir_fd=fd)
        elif wanted.kind == "file":
            _fill(job, fd, spare, path, wanted)
        elif wanted.value == str(stat.S_IFIFO):
            os.mkfifo(spare, dir_fd=fd)
        else:
            return ""  # a socket or a device belongs to a running program: it cannot be made again
    except BaseException:
        if _look(fd, spare) is not None:
            os.unlink(spare, dir_fd=fd)
        raise
    return spare


def _fill(job: _Job, fd: int, spare: str, path: str, wanted: Item) -> None:
    import hashlib

    total = hashlib.sha256()
    file = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
    try:
        for chunk in _bytes(wanted, job.store, job.read_blob):
            total.update(chunk)
            files.put(file, chunk)
        os.fchmod(file, wanted.mode)
    finally:
        os.close(file)
    if total.hexdigest() != wanted.value:
        raise WorldError(f"the kept bytes of {path!r} are not the ones that were there", hint="doflow verify")


def _bytes(wanted: Item, store: str, read_blob: Callable[[str], bytes]) -> Iterable[bytes]:
    if wanted.blob or not store:
        yield read_blob(wanted.blob or wanted.value)
        return
    if wanted.value.startswith("unreadable"):
        raise WorldError("it could not be read before the step", hint="give yourself leave to read it")
    file = os.open(contents.stored(store, wanted.value), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while chunk := os.read(file, _CHUNK):
            yield chunk
    finally:
        os.close(file)


def _clear(job: _Job, fd: int, name: str, path: str, status: os.stat_result) -> None:
    """Free the name. An empty folder that was not there before holds nothing worth keeping."""
    if stat.S_ISDIR(status.st_mode):
        try:
            os.rmdir(name, dir_fd=fd)
            return
        except OSError:
            pass  # not empty: displaced as a whole
    job.keep(fd, name, path)


def _tidy(job: _Job, folder: str) -> None:
    """Take away folders that were not there before the step and are empty now."""
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
