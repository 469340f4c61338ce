"""One entry of a folder: its kind, mode and bytes, read by descriptor and stored by hash."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from doflow.util import atomic_files, file_signature
from doflow.util.file_signature import FileSignature

_CHUNK = 1 << 20
_TRIES = 3
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Item:
    """One file, link or special file. `value` is the sha256, the link's target or the type.

    `blob` is the id under which git holds the bytes ('' = they are in the store).
    """

    kind: str
    mode: int
    value: str
    blob: str
    stat: FileSignature

    def equals(self, other: Item | None) -> bool:
        """Whether the content is the same, wherever the bytes are stored and whenever they were written."""
        return other is not None and (self.kind, self.mode, self.value) == (other.kind, other.mode, other.value)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All items by path from the root, and all folders; `taken` in nanoseconds."""

    taken: int
    items: Mapping[str, Item]
    folders: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Change:
    """How a path changed: added, changed, deleted, mode or type."""

    path: str
    kind: str


def inspect(fd: int, name: str, status: os.stat_result, store: str = "", blob: str = "") -> Item | None:
    """The item of one entry of an open folder (None = it vanished).

    With `store` its bytes are kept there, unless git holds exactly them as `blob`.
    """
    mark, mode = file_signature.from_status(status), status.st_mode
    try:
        if stat.S_ISLNK(mode):
            return Item("link", 0, os.readlink(name, dir_fd=fd), "", mark)
        if not stat.S_ISREG(mode):
            return Item("special", 0, str(stat.S_IFMT(mode)), "", mark)
        return _file(fd, name, store, blob)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        return Item("file", permissions(mode), f"unreadable {status.st_size} {status.st_mtime_ns}", "", mark)


def permissions(mode: int) -> int:
    return stat.S_IMODE(mode) if stat.S_ISREG(mode) else 0


def _file(fd: int, name: str, store: str, blob: str) -> Item | None:
    """Read again if it was written meanwhile; the recorded stat is from before reading."""
    file = os.open(name, _READ, dir_fd=fd)
    try:
        for _ in range(_TRIES):
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return None
            value, ident = _hash(file, len(blob), status.st_size)
            held = blob if blob and ident == blob else ""
            if store and not held:
                value = _keep(file, value, store)
            if file_signature.from_status(os.fstat(file)) == file_signature.from_status(status):
                break
        return Item("file", permissions(status.st_mode), value, held, file_signature.from_status(status))
    finally:
        os.close(file)


def _hash(file: int, width: int, size: int) -> tuple[str, str]:
    """sha256 of the bytes and, in the same reading, the id git would give them ('' if not asked for)."""
    total = hashlib.sha256()
    ident = hashlib.new("sha1" if width == 40 else "sha256", b"blob %d\0" % size, usedforsecurity=False)
    os.lseek(file, 0, os.SEEK_SET)
    while chunk := os.read(file, _CHUNK):
        total.update(chunk)
        if width:
            ident.update(chunk)
    return total.hexdigest(), ident.hexdigest() if width else ""


def _keep(file: int, value: str, store: str) -> str:
    """Copy the bytes into the store under their hash, which is returned."""
    if os.path.exists(stored(store, value)):
        return value
    total = hashlib.sha256()
    os.makedirs(store, mode=0o700, exist_ok=True)
    temporary = os.path.join(store, f"{os.urandom(8).hex()}.tmp")
    out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.lseek(file, 0, os.SEEK_SET)
        while chunk := os.read(file, _CHUNK):
            total.update(chunk)
            atomic_files.write_all(out, chunk)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(out)
    place = stored(store, total.hexdigest())
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    os.replace(temporary, place)
    return total.hexdigest()


def stored(store: str, value: str) -> str:
    """Where the store keeps the bytes with this sha256."""
    return os.path.join(store, value[:2], value[2:])


def item(row: list[object]) -> Item:
    """Parsed from the JSON of `path, kind, mode, value, blob, stat`."""
    _, kind, mode, value, blob, mark = row
    if not isinstance(mode, int) or not isinstance(mark, list):
        raise ValueError("not an item")
    size, modified, changed, inode = (int(number) for number in mark)
    return Item(str(kind), mode, str(value), str(blob), FileSignature(size, modified, changed, inode))
