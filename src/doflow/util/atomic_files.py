"""Atomic file writes: state reaches the disk completely, or not at all.

Nothing here follows a symbolic link in the last component, waits on a pipe, or leaves a partial file behind.
"""

from __future__ import annotations

import errno
import os
import stat

from doflow.util import deferred, file_signature
from doflow.util.errors import WorldError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CHUNK = 1 << 20
_TEMPORARY = len(".doflow-0123456789abcdef.tmp")


def write_file(
    path: str | os.PathLike[str],
    data: bytes,
    mode: int = 0o644,
    sync: bool = True,
    alone: bool = False,
    opened: Callable[[int], None] | None = None,
) -> None:
    """Write `data` to `path` atomically: it holds the old content or the new, even after a power cut.

    Without `sync` it may reach the disk later: for what can be derived again. A writer that is `alone` (it holds a lock)
    always uses the same temporary name, so that a leftover of a killed writer is overwritten next time. `opened` gets the
    descriptor of the new file before the rename, to lock it.
    """
    target = os.fspath(path)
    folder, name = os.path.split(target)
    try:
        folder_fd = open_folder(folder or ".")
        try:
            replace_in_folder(folder_fd, name, data, mode, sync, alone, opened)
        finally:
            os.close(folder_fd)
    except OSError as error:
        raise io_error("write", target, error) from error


def replace_in_folder(
    folder_fd: int,
    name: str,
    data: bytes,
    mode: int,
    sync: bool,
    alone: bool = False,
    opened: Callable[[int], None] | None = None,
) -> None:
    """Write `data` to `name` in an open folder, with a temporary file in that folder and a rename; raises OSError."""
    temporary = f".{name}.tmp" if alone else f".doflow-{os.urandom(8).hex()}.tmp"
    if alone:
        _unlink(temporary, folder_fd)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _QUIET, 0o600, dir_fd=folder_fd)
    try:
        try:
            if opened is not None:
                opened(fd)
            write_all(fd, data)
            os.fchmod(fd, mode)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        _unlink(temporary, folder_fd)
        raise
    if sync:
        os.fsync(folder_fd)


def sync_folder(path: str) -> None:
    """Wait until the names in a folder are on the disk; raises OSError."""
    fd = open_folder(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_soon(path: str | os.PathLike[str]) -> None:
    """Sync a file that was written without `sync` a moment later (see `deferred`), before any paid call."""
    _loose.add(os.fspath(path))
    deferred.later(_sync_loose)


_loose: set[str] = set()


def _sync_loose() -> None:
    while _loose:
        path = _loose.pop()
        for place, flags in ((path, os.O_RDONLY | _QUIET), (os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)):
            try:
                fd = os.open(place, flags)
            except FileNotFoundError:
                break  # removed meanwhile
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def remove_temporaries(folder: str | os.PathLike[str]) -> None:
    """Remove temporary files that a killed writer of ours left in this folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if len(name) == _TEMPORARY and name.startswith(".doflow-") and name.endswith(".tmp"):
            os.unlink(os.path.join(folder, name))


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in as many writes as it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def open_folder(path: str, dir_fd: int | None = None) -> int:
    """A descriptor of a real directory; with `dir_fd` a link in its place is refused."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if dir_fd is not None else 0)
    return os.open(path, flags, dir_fd=dir_fd)


class Appender:
    """Appends to one file, which stays open. A torn line of a killed writer is ended first."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            self._fd = self._open()
        except OSError as error:
            raise io_error("write", self.path, error) from error

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | _QUIET
        try:
            fd = os.open(self.path, flags)
        except FileNotFoundError:
            fd = os.open(self.path, flags | os.O_CREAT, 0o644)
            sync_soon(self.path)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _not_regular(self.path)
        return fd

    def add(self, data: bytes, sync: bool = True) -> None:
        """Append in one write; with `sync` it is on the disk when this returns."""
        try:
            write_all(self._fd, b"\n" + data if self._torn() else data)
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            raise io_error("write", self.path, error) from error

    def _torn(self) -> bool:
        size = os.fstat(self._fd).st_size
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def mark(self) -> tuple[int, ...]:
        """Changes with every write, ours or not, and when the file is replaced."""
        try:
            there, ours = os.lstat(self.path), os.fstat(self._fd)
        except OSError:
            return ()
        return (there.st_ino, *file_signature.from_status(ours))

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise io_error("write", self.path, error) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def append_to_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Append once, durably. For many lines keep an `Appender`."""
    appender = Appender(path)
    try:
        appender.add(data)
        _sync_loose()
    finally:
        appender.close()


def file_digest(path: str | os.PathLike[str]) -> str:
    """sha256 of a regular file in hex, '' if there is none; anything else in its place is refused.

    Line endings don't matter in a text: git may have converted them at checkout (`text`, core.autocrlf).
    """
    target = os.fspath(path)
    try:
        fd = os.open(target, os.O_RDONLY | _QUIET)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_regular(target) from error
        raise io_error("read", target, error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _not_regular(target)
        return _sha256(fd)
    except OSError as error:
        raise io_error("read", target, error) from error
    finally:
        os.close(fd)


def _sha256(fd: int) -> str:
    import hashlib  # not at the top: every hook imports this module

    total = hashlib.sha256()
    turned = False
    while chunk := os.read(fd, _CHUNK):
        total.update(chunk)
        turned = turned or b"\r" in chunk
    if turned:
        os.lseek(fd, 0, os.SEEK_SET)
        with os.fdopen(os.dup(fd), "rb") as stream:
            return data_digest(stream.read())
    return total.hexdigest()


def data_digest(data: bytes) -> str:
    """The `file_digest` of a file with this content."""
    import hashlib

    turned = b"\r" in data and b"\0" not in data[:8000]
    return hashlib.sha256(data.replace(b"\r\n", b"\n") if turned else data).hexdigest()


def syncfs(path: str | os.PathLike[str]) -> None:
    """Wait until everything written to the file system of `path` is on the disk."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        os.sync()
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if call(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)
    except OSError as error:
        raise io_error("write", os.fspath(path), error) from error


def io_error(deed: str, path: str, error: OSError) -> WorldError:
    """The error for a failed `deed` (read, write) at `path`."""
    shown = ascii(path)[1:-1]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space and run the same command again; finished steps are kept"
        return WorldError(f"disk full at {shown}", hint=hint)
    if error.errno == errno.EROFS:
        return WorldError(f"read-only file system at {shown}", hint="make it writable and run again")
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f"check its owner and mode: ls -ld '{shown}'"
        return WorldError(f"no permission to {deed} {shown}", hint=hint)
    if error.errno == errno.ELOOP:
        return _not_regular(path)
    hint = f"check it: ls -ld '{shown}'"
    return WorldError(f"cannot {deed} {shown}: {error.strerror or error}", hint=hint)


def _not_regular(path: str) -> WorldError:
    shown = ascii(path)[1:-1]
    hint = f"check it (ls -ld '{shown}') and move it away"
    return WorldError(f"{shown} is a link, a folder or a special file, not a regular file", hint=hint)


def _unlink(name: str, folder_fd: int) -> None:
    try:
        os.unlink(name, dir_fd=folder_fd)
    except OSError:
        pass  # it was renamed already, or its folder is gone: nothing of ours is left to remove
