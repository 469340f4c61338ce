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
    read-only commands."""

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
        self._digests: dict[str, tuple[FileSignature, str]] = {}

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
        names = globs.find_files(self.root, path)
        return tuple(name for name in names if not name.startswith((".git/", f"{state_folder.NAME}/")))

    def text(self, path: str) -> str | None:
        """The text of a file (lines end in LF), or None if there is none; never waits on a pipe."""
        data = self.pending[path] if path in self.pending else self._read(path)
        return None if data is None else data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")

    def _read(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
        full = os.path.join(self.root, path)
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if stat.S_ISDIR(found.st_mode):
            return ""
        if stat.S_ISLNK(found.st_mode):
            target = os.path.realpath(full)
            content = atomic_files.file_digest(target) if os.path.isfile(target) else ""
            text = f"link to {os.readlink(full)}, which holds {content}"
            return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        signature = file_signature.from_status(found)
        known = self._digests.get(path)
        if known is None or known[0] != signature:
            known = (signature, atomic_files.file_digest(full))
            self._digests[path] = known
        return known[1]
