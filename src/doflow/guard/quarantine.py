"""Keeping what was moved out of the way: nothing is deleted, everything can be shown and put back.

Things lie under flat random names; where they came from stands in `index.jsonl` alone, so no path an agent chose ever
becomes a path here.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import dataclass

_HEX = frozenset("0123456789abcdef")
Keep = Callable[[int, str, str], str]


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing in quarantine: `path` is where it was, from the project's root."""

    id: str
    path: str
    why: str
    run: str
    step: str
    at: str
    kind: str
    size: int


class Quarantine:
    """A folder (usually `.doflow/quarantine`) that holds displaced things."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)

    def take(self, dir_fd: int, name: str, rel: str, why: str = "", run: str = "", step: str = "") -> str:
        """Move `name` of an open folder in here; gives its id. Its index line is written first."""
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        ident = os.urandom(16).hex()
        fd = self._open()
        try:
            self._note(ident, rel, why, run, step, _kind(status.st_mode), status.st_size)
            try:
                os.rename(name, ident, src_dir_fd=dir_fd, dst_dir_fd=fd)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _carry(dir_fd, name, fd, ident)
        except OSError as error:
            raise files.broke("move", rel, error) from error
        finally:
            os.close(fd)
        return ident

    __call__ = take

    def about(self, why: str, run: str = "", step: str = "") -> Keep:
        """`take` with its reason given beforehand: `keep(dir_fd, name, rel)`."""

        def keep(dir_fd: int, name: str, rel: str) -> str:
            return self.take(dir_fd, name, rel, why, run, step)

        return keep

    def put(self, data: bytes, rel: str, why: str = "", run: str = "", step: str = "") -> str:
        """Keep these bytes as what `rel` held; gives the id."""
        ident = os.urandom(16).hex()
        fd = self._open()
        try:
            self._note(ident, rel, why, run, step, "file", len(data))
            files.replace(fd, ident, data, 0o600, sync=True)
        except OSError as error:
            raise files.broke("write", self.folder, error) from error
        finally:
            os.close(fd)
        return ident

    def _open(self) -> int:
        """The folder itself, made if needed; a link in its place is not followed."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise files.broke("open", self.folder, error) from error

    def _note(self, ident: str, rel: str, why: str, run: str, step: str, kind: str, size: int) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row = {"id": ident, "path": rel, "why": why, "run": run, "step": step, "at": at, "kind": kind, "size": size}
        appender = files.Appender(os.path.join(self.folder, "index.jsonl"))
        try:
            appender.add(json.dumps(row).encode() + b"\n", sync=False)
        finally:
            appender.close()

    def entries(self) -> tuple[Kept, ...]:
        """All that is here, oldest first; torn or foreign lines of the index are passed over."""
        try:
            lines = Path(self.folder, "index.jsonl").read_bytes().splitlines()
            there = set(os.listdir(self.folder))
        except FileNotFoundError:
            return ()
        found = (_kept(line) for line in lines)
        return tuple(kept for kept in found if kept is not None and kept.id in there)

    def find(self, ident: str) -> Kept:
        """The one entry whose id begins so."""
        hits = [kept for kept in self.entries() if ident and kept.id.startswith(ident)]
        if len(hits) != 1:
            what = "is not in the quarantine" if not hits else f"fits {len(hits)} things in the quarantine"
            raise WorldError(f"{ident!r} {what}", hint="see them all: doflow quarantine list")
        return hits[0]

    def read(self, ident: str) -> bytes:
        """The bytes of a kept file, or the target of a kept link."""
        kept = self.find(ident)
        fd = self._open()
        try:
            if kept.kind == "link":
                return os.fsencode(os.readlink(kept.id, dir_fd=fd))
            if kept.kind != "file":
                raise WorldError(f"{kept.path!r} was a {kept.kind}: it has no bytes to show", hint=f"ls {self.folder}")
            file = os.open(kept.id, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
            with os.fdopen(file, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise files.broke("read", os.path.join(self.folder, kept.id), error) from error
        finally:
            os.close(fd)

    def restore(self, ident: str, root: str | os.PathLike[str], to: str | None = None, force: bool = False) -> str:
        """Put a copy back where it was, or at `to`; gives that path. What is there is never overwritten.

        With `force` what is there goes into the quarantine itself.
        """
        kept = self.find(ident)
        rel = to if to is not None else kept.path
        place = parent(os.fspath(root), rel)
        name = rel.rpartition("/")[2]
        try:
            if _there(place, name):
                if not force:
                    hint = f"choose another place (--to PATH), or swap them: doflow quarantine restore {ident} --force"
                    raise WorldError(f"{rel!r} is there already", hint=hint)
                self.take(place, name, rel, f"replaced by {kept.id}", kept.run, kept.step)
            _copy(os.path.join(self.folder, kept.id), kept.kind, place, name)
        except OSError as error:
            raise files.broke("restore", rel, error) from error
        finally:
            os.close(place)
        return rel


def parent(root: str, rel: str) -> int:
    """The folder of `rel`, opened step by step from `root` and made where missing; no link is followed."""
    parts = rel.split("/")
    if any(part in ("", ".", "..", ".git") for part in parts):
        raise WorldError(
            f"{rel!r} is not a path inside the project", hint="give one from the project's root: --to PATH"
        )
    fd = files.open_folder(root)
    for part in parts[:-1]:
        try:
            if not _there(fd, part):
                os.mkdir(part, dir_fd=fd)
            inner = files.open_folder(part, dir_fd=fd)
        except OSError as error:
            raise files.broke("open", rel, error) from error
        finally:
            os.close(fd)
        fd = inner
    return fd


def _there(dir_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "special"


def _kept(line: bytes) -> Kept | None:
    try:
        row = json.loads(line)
        kept = Kept(*(row[name] for name in Kept.__slots__))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = (kept.id, kept.path, kept.why, kept.run, kept.step, kept.at, kept.kind)
    plain = all(isinstance(text, str) for text in texts) and isinstance(kept.size, int)
    return kept if plain and len(kept.id) == 32 and _HEX.issuperset(kept.id) else None


def _copy(source: str, kind: str, place: int, name: str) -> None:
    """Copy beside the target first, so that a full disk leaves nothing half done."""
    import shutil

    if kind == "link":
        os.symlink(os.readlink(source), name, dir_fd=place)
    elif kind == "file":
        mode = stat.S_IMODE(os.lstat(source).st_mode)
        files.replace(place, name, Path(source).read_bytes(), mode, sync=True)
    elif kind == "folder":
        shutil.copytree(source, f"{_path(place)}/{name}", symlinks=True)
    else:
        raise WorldError(f"{name!r} was a pipe, a socket or a device: it cannot be put back", hint="make it anew")


def _carry(dir_fd: int, name: str, fd: int, ident: str) -> None:
    """Move across file systems: copied whole, and only then taken away."""
    import shutil

    source = f"{_path(dir_fd)}/{name}"
    shutil.move(source, f"{_path(fd)}/{ident}")


def _path(fd: int) -> str:
    """A path for an open folder, for the few calls that know no descriptors."""
    if os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{fd}"
    import fcntl

    return fcntl.fcntl(fd, 50, b"\0" * 1024).rstrip(b"\0").decode()  # 50 = F_GETPATH on macOS
