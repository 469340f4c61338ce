"""Quarantine for displaced files: nothing is deleted, everything can be shown and restored.

Entries have flat random names; only `index.jsonl` says where they came from, so a path chosen by an agent never becomes
a path here.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from doflow.git import history
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import atomic_files, state_folder, timestamps
from doflow.util.errors import WorldError

_HEX = frozenset("0123456789abcdef")
Keep = Callable[[int, str, str], str]


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry in quarantine: `path` is where it was, from the project's root."""

    id: str
    path: str
    why: str
    run: str
    step: str
    at: str
    kind: str
    size: int


class Quarantine:
    """A folder (usually `.doflow/quarantine`) that holds displaced files."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)

    def take(self, dir_fd: int, name: str, rel: str, why: str = "", run: str = "", step: str = "") -> str:
        """Move `name` of an open folder in here; returns its id. Its index line is written first."""
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
            raise atomic_files.io_error("move", rel, error) from error
        finally:
            os.close(fd)
        return ident

    def take_files(self, files: Sequence[tuple[str, str]], why: str = "", run: str = "", step: str = "") -> None:
        """Move files of a workspace in here: (file, the path it stands for). Their index lines are written first, at once."""
        rows, moves = [], []
        for source, rel in files:
            status = os.lstat(source)
            ident = os.urandom(16).hex()
            moves.append((source, ident))
            rows.append(_row(ident, rel, why, run, step, _kind(status.st_mode), status.st_size))
        os.close(self._open())
        try:
            self._append(rows)
            for source, ident in moves:
                shutil.move(source, os.path.join(self.folder, ident))
        except OSError as error:
            raise atomic_files.io_error("move", self.folder, error) from error

    __call__ = take

    def about(self, why: str, run: str = "", step: str = "") -> Keep:
        """`take` with a fixed reason: `keep(dir_fd, name, rel)`."""

        def keep(dir_fd: int, name: str, rel: str) -> str:
            return self.take(dir_fd, name, rel, why, run, step)

        return keep

    def put(self, data: bytes, rel: str, why: str = "", run: str = "", step: str = "") -> str:
        """Store these bytes as the content of `rel`; returns the id."""
        ident = os.urandom(16).hex()
        fd = self._open()
        try:
            self._note(ident, rel, why, run, step, "file", len(data))
            atomic_files.replace_in_folder(fd, ident, data, 0o600, sync=True)
        except OSError as error:
            raise atomic_files.io_error("write", self.folder, error) from error
        finally:
            os.close(fd)
        return ident

    def _open(self) -> int:
        """The folder itself, created if needed; a link in its place is not followed."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise atomic_files.io_error("open", self.folder, error) from error

    def _note(self, ident: str, rel: str, why: str, run: str, step: str, kind: str, size: int) -> None:
        self._append([_row(ident, rel, why, run, step, kind, size)])

    def _append(self, rows: Iterable[Mapping[str, object]]) -> None:
        appender = atomic_files.Appender(os.path.join(self.folder, "index.jsonl"))
        try:
            appender.add(b"".join(json.dumps(row).encode() + b"\n" for row in rows), sync=False)
        finally:
            appender.close()

    def entries(self) -> tuple[Kept, ...]:
        """All entries, oldest first; torn or foreign lines of the index are skipped."""
        try:
            lines = Path(self.folder, "index.jsonl").read_bytes().splitlines()
            there = set(os.listdir(self.folder))
        except FileNotFoundError:
            return ()
        found = (_kept(line) for line in lines)
        return tuple(kept for kept in found if kept is not None and kept.id in there)

    def find(self, ident: str) -> Kept:
        """The one entry whose id starts with this."""
        hits = [kept for kept in self.entries() if ident and kept.id.startswith(ident)]
        if len(hits) != 1:
            what = "is not in quarantine" if not hits else f"matches {len(hits)} entries in quarantine"
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
                raise WorldError(
                    f"{kept.path!r} was a {kept.kind}: it has no content to show", hint=f"ls {self.folder}"
                )
            file = os.open(kept.id, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
            with os.fdopen(file, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise atomic_files.io_error("read", os.path.join(self.folder, kept.id), error) from error
        finally:
            os.close(fd)

    def restore(self, ident: str, root: str | os.PathLike[str], to: str | None = None, force: bool = False) -> str:
        """Restore a copy to its path, or to `to`; returns that path. An existing file is never overwritten.

        With `force` an existing file goes into quarantine.
        """
        kept = self.find(ident)
        rel = to if to is not None else kept.path
        place = open_parent(os.fspath(root), rel)
        name = rel.rpartition("/")[2]
        try:
            if _there(place, name):
                if not force:
                    hint = f"choose another place (--to PATH), or swap them: doflow quarantine restore {ident} --force"
                    raise WorldError(f"{rel!r} already exists", hint=hint)
                self.take(place, name, rel, f"replaced by {kept.id}", kept.run, kept.step)
            _copy(os.path.join(self.folder, kept.id), kept.kind, place, name)
        except OSError as error:
            raise atomic_files.io_error("restore", rel, error) from error
        finally:
            os.close(place)
        return rel


def _row(ident: str, rel: str, why: str, run: str, step: str, kind: str, size: int) -> dict[str, object]:
    at = timestamps.format_seconds()
    return {"id": ident, "path": rel, "why": why, "run": run, "step": step, "at": at, "kind": kind, "size": size}


def open_parent(root: str, rel: str) -> int:
    """The folder of `rel`, opened component by component from `root` and created if missing; no link is followed."""
    parts = rel.split("/")
    if any(part in ("", ".", "..", ".git") for part in parts):
        raise WorldError(
            f"{rel!r} is not a path inside the project", hint="give one from the project's root: --to PATH"
        )
    fd = atomic_files.open_folder(root)
    for part in parts[:-1]:
        try:
            if not _there(fd, part):
                os.mkdir(part, dir_fd=fd)
            inner = atomic_files.open_folder(part, dir_fd=fd)
        except OSError as error:
            raise atomic_files.io_error("open", rel, error) from error
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
    """Copy next to the target first, so that a full disk leaves no partial file."""
    if kind == "link":
        os.symlink(os.readlink(source), name, dir_fd=place)
    elif kind == "file":
        mode = stat.S_IMODE(os.lstat(source).st_mode)
        atomic_files.replace_in_folder(place, name, Path(source).read_bytes(), mode, sync=True)
    elif kind == "folder":
        shutil.copytree(source, f"{_path(place)}/{name}", symlinks=True)
    else:
        raise WorldError(f"{name!r} was a pipe, a socket or a device: it cannot be restored", hint="create it again")


def _carry(dir_fd: int, name: str, fd: int, ident: str) -> None:
    """Move across file systems: copy completely, then remove."""
    source = f"{_path(dir_fd)}/{name}"
    shutil.move(source, f"{_path(fd)}/{ident}")


def _path(fd: int) -> str:
    """A path for an open folder, for the few calls that take no descriptor."""
    if os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{fd}"

    return fcntl.fcntl(fd, 50, b"\0" * 1024).rstrip(b"\0").decode()  # 50 = F_GETPATH on macOS


def failed(context: RunContext, job: Job, begun: Mapping[str, str]) -> tuple[str, ...]:
    """Quarantine what a failed command has made since its start, and restore the last good version."""
    left = tuple(path for path in job.makes if (now := context.files.digest(path)) and now != begun[path])
    quarantine_outputs(context, left, f"left by a failed attempt of {job.name}", job.name)
    for path in left:
        _committed_again(context, path)
    return left


def quarantine_outputs(context: RunContext, paths: Iterable[str], why: str, name: str) -> None:
    keep = Quarantine(context.root / state_folder.QUARANTINE).about(why, context.run.name, name)
    for path in paths:
        folder = os.open(os.path.dirname(context.root / path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            keep(folder, os.path.basename(path), path)
        finally:
            os.close(folder)


def _committed_again(context: RunContext, path: str) -> None:
    """The artifact of the step's last success, if the branch has it."""
    held = context.record.artifacts.get(path)
    if held is None:
        return

    data = history.file_at(context.git, "HEAD", f"{context.prefix}{path}")
    if data is not None and hashlib.sha256(data).hexdigest() == held.digest:
        atomic_files.write_file(str(context.root / path), data)
