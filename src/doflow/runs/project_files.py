"""Project files as a run sees them: paths of a flow, contents, digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from doflow.util import atomic_files, file_signature, globs, state_folder
from doflow.util.errors import WorldError
from doflow.util.file_signature import FileSignature


class ProjectFiles:
    """`task_lists`: files whose ticked boxes are ignored. `pending`: future contents of some files (None = deleted), for
    read-only commands. In a workspace some files are elsewhere: see `show`."""

    def __init__(
        self,
        root: Path,
        run_dir: str,
        task_lists: frozenset[str] = frozenset(),
        pending: Mapping[str, bytes | None] | None = None,
    ) -> None:
        self.root = root
        self.run_dir = run_dir
        self.task_lists = task_lists
        self.pending = pending or {}
        self._shown: Mapping[str, str] = {}
        self._digests: dict[str, tuple[FileSignature, str]] = {}

    def show(self, places: Mapping[str, str]) -> None:
        """Read these paths elsewhere from now on: the file that holds the content, '' = deleted."""
        self._shown = places

    @property
    def shown(self) -> Mapping[str, str]:
        """What a workspace shows elsewhere."""
        return self._shown

    def in_workspace(self) -> ProjectFiles:
        """The same files, for a workspace that shows some of them elsewhere."""
        return ProjectFiles(self.root, self.run_dir, self.task_lists, self.pending)

    def locate(self, path: str) -> str:
        """The file that holds the content of a path, whether it exists or not; '' if a workspace has deleted it."""
        return self._shown[path] if path in self._shown else os.path.join(self.root, path)

    def with_pending(self, pending: Mapping[str, bytes | None]) -> ProjectFiles:
        return ProjectFiles(self.root, self.run_dir, self.task_lists, {**self.pending, **pending})

    def path(self, name: str) -> str:
        """A path as a flow writes it, relative to the project's root."""
        return name.lstrip("/") if name.startswith("/") else f"{self.run_dir}/{name}"

    def expand(self, name: str) -> tuple[str, ...]:
        """The files that a path or a glob of a flow means, in order."""
        path = self.path(name)
        if not globs.is_pattern(path):
            return (path,)
        names = set(globs.find_files(self.root, path)) - self._shown.keys()
        names |= {name for name, place in self._shown.items() if place and globs.matches((f"/{path}",), name)}
        return tuple(sorted(name for name in names if not name.startswith((".git/", f"{state_folder.NAME}/"))))

    def text(self, path: str) -> str | None:
        """The text of a file (lines end in LF), or None if there is none; never waits on a pipe."""
        data = self.pending[path] if path in self.pending else self._read(path)
        return None if data is None else data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")

    def _read(self, path: str) -> bytes | None:
        place = self.locate(path)
        if not place:
            return None
        try:
            descriptor = os.open(self._target(path, place), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise WorldError(f"{path}: cannot be read ({cause.strerror})") from cause
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()

    def digest(self, path: str) -> str:
        """SHA-256 of a file (a link: of its target), '' if there is none; cached until its metadata changes."""
        if path in self.pending:
            data = self.pending[path]
            return "" if data is None else atomic_files.data_digest(data)
        full = self.locate(path)
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if stat.S_ISDIR(found.st_mode):
            return ""
        if stat.S_ISLNK(found.st_mode):
            target = self._target(path, full)
            content = atomic_files.file_digest(target) if os.path.isfile(target) else ""
            text = f"link to {os.readlink(full)}, which holds {content}"
            return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        signature = file_signature.from_status(found)
        known = self._digests.get(full)
        if known is None or known[0] != signature:
            known = (signature, atomic_files.file_digest(full))
            self._digests[full] = known
        return known[1]

    def _target(self, path: str, place: str) -> str:
        """The file at the end of a link, as programs of the workspace see it."""
        if not os.path.islink(place):
            return place
        if path not in self._shown:
            return os.path.realpath(place)
        folder = os.path.dirname(os.path.join(self.root, path))
        target = os.path.normpath(os.path.join(folder, os.readlink(place)))
        name = os.path.relpath(target, self.root)
        return self._shown.get(name) or os.path.realpath(target)
