"""Brings the change of a job together with what the person did to the same file meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doflow.git import history
from doflow.git.repository import Repository
from doflow.guard import early_code
from doflow.guard.fence.scope import Scope
from doflow.guard.workspace import layers
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import JobStorage, Opened
from doflow.runs.context import RunContext
from doflow.util import atomic_files
from doflow.util.errors import WorldError


class GivenFiles:
    """The person's uncommitted files when the job was opened: tracked ones that differed from HEAD with their bytes, and the
    names of untracked ones."""

    def __init__(self, store: JobStorage, worker: threading.Thread | None = None) -> None:
        self._folder = store.given
        self._worker = worker
        self._names: Mapping[str, str] | None = None

    def wait(self) -> None:
        if self._worker is not None:
            self._worker.join()

    def content(self, path: str) -> bytes | None:
        """What the job was given at a path (from the project's root) that had uncommitted edits; None = it had none."""
        name = self._listed().get(path)
        return Path(self._folder, name).read_bytes() if name else None

    def is_untracked(self, path: str) -> bool:
        """Whether git did not know this file of the person when the job was opened."""
        return self._listed().get(path) == ""

    def _listed(self) -> Mapping[str, str]:
        """Path -> name of the copy, '' = untracked, there is none."""
        self.wait()
        if self._names is None:
            try:
                self._names = json.loads(Path(self._folder, "names.json").read_bytes())
            except FileNotFoundError:
                self._names = {}
        return self._names


def note_given_files(context: RunContext, store: JobStorage) -> GivenFiles:
    """Copy the uncommitted tracked files aside, in the background while the first program starts."""
    git = context.git

    def copy() -> None:
        os.makedirs(store.given, exist_ok=True)
        names: dict[str, str] = {}
        with suppress(WorldError):
            names |= dict.fromkeys(history.untracked_in_project(git), "")
            for number, path in enumerate(history.uncommitted_files(git)):
                with suppress(OSError):
                    source = os.path.join(context.root, path)
                    if stat.S_ISREG(os.lstat(source).st_mode):
                        shutil.copyfile(source, os.path.join(store.given, str(number)))
                        names[path] = str(number)
        with suppress(OSError):
            atomic_files.write_file(os.path.join(store.given, "names.json"), json.dumps(names).encode(), sync=False)

    worker = threading.Thread(target=copy, daemon=True)
    worker.start()
    return GivenFiles(store, worker)


def changed_uncommitted_work(
    context: RunContext, scope: Scope, head: str, given: GivenFiles, changes: Sequence[LayerChange]
) -> tuple[LayerChange, ...]:
    """Where a job may write everything: untracked files of the person are not its to change, nor are those that have
    uncommitted edits its to delete. `head`: the commit when the job was opened."""
    folder, left = f"{context.run.dir}/", context.record.command_outputs

    def is_theirs(change: LayerChange) -> bool:
        path = change.path
        if change.kind == "added" or path.startswith(folder) or scope.names(path):
            return False
        if left.get(path) == entry_digest(os.path.join(context.root, path)):
            return False
        if given.is_untracked(path):
            return True
        edited = given.content(path) if not change.source else None  # git may list a file that only looks edited
        return edited is not None and edited != history.filtered_file_at(context.git, head, f"{context.prefix}{path}")

    return tuple(change for change in changes if is_theirs(change))


class Unmergeable(Exception):
    """Why two versions of a file cannot be brought together."""


class Merge:
    """One accepted change, brought together with the project's file as it is now."""

    def __init__(
        self, context: RunContext, opened: Opened, given: GivenFiles, head: str, change: LayerChange, staged: str
    ) -> None:
        self._context, self._opened, self._given, self._head = context, opened, given, head
        self._change, self._staged = change, staged
        self._real = os.path.join(context.root, change.path)
        self._name = f"{context.prefix}{change.path}"

    def file(self) -> dict[str, Any] | None:
        """The write that gives the project's file its new content; None = it has it already."""
        change, now = self._change, entry_digest(self._real)
        if not change.source:
            if not now:
                return None
            if not self._unchanged():
                raise Unmergeable("it deleted the file, which you changed meanwhile")
            return {"path": change.path, "was": now, "now": ""}
        source = change.source
        text = self._text_for_commit()
        if now and text is not None:
            source = self._with_edits(text)
        elif now and not self._unchanged() and not _same(self._real, source):
            source = self._merged()
        elif now and not os.path.islink(source) and not os.path.islink(self._real):
            source = self._with_line_endings(source)
        elif not now and change.kind == "changed" and self._was_there():
            raise Unmergeable("it changed the file, which you deleted meanwhile")
        kept = self._stage(source, self._staged)
        return {
            "path": change.path,
            "was": now,
            "now": entry_digest(kept),
            "from": kept,
            "mode": _mode(source, self._real),
        }

    def committed(self, write: Mapping[str, Any] | None) -> str | None:
        """The file whose content the commit gets, where it differs from what the project's file gets; None = the same."""
        if not self._change.source:
            return None
        text = self._text_for_commit()
        if text is not None:
            return self._stage_bytes(text, f"{self._staged}.commit")
        merged = write is not None and write.get("from") and not _same_content(write["from"], self._change.source)
        return self._stage(self._change.source, f"{self._staged}.commit") if merged else None

    def _text_for_commit(self) -> bytes | None:
        """HEAD's version of a file that had uncommitted edits, with the job's change alone; None = it had none."""
        base = self._given.content(self._change.path)
        if base is None:
            return None
        if os.path.islink(self._change.source):
            raise Unmergeable("it put a link in place of your uncommitted edits")
        text = self._merged_text(self._at_head(), base)
        if text is None:
            raise Unmergeable("it changed lines next to your uncommitted edits; commit or stash them")
        return text

    def _with_edits(self, text: bytes) -> str:
        """The person's edits over what is committed: they stay, also if the job has undone them."""
        if os.path.islink(self._real) or not os.path.isfile(self._real):
            raise Unmergeable("it is a link or of another kind now")
        merged = self._merged_texts(Path(self._real).read_bytes(), self._at_head(), text)
        if merged is None:
            raise Unmergeable("you and the job changed the same lines")
        return self._stage_bytes(merged, f"{self._staged}.merged")

    def _at_head(self) -> bytes:
        found = history.filtered_file_at(self._context.git, self._head, self._name) if self._head else None
        return found if found is not None else b""

    def _unchanged(self) -> bool:
        """Is the project's file as it was when the job was opened?"""
        try:
            status = os.lstat(self._real)
        except OSError:
            return True
        if status.st_ctime_ns < self._opened.at:
            return True
        base = self._base()
        return base is not None and stat.S_ISREG(status.st_mode) and Path(self._real).read_bytes() == base

    def _was_there(self) -> bool:
        return self._base() is not None

    def _base(self) -> bytes | None:
        """What the job was given; None if it is not known (untracked) or did not exist."""
        found = self._given.content(self._change.path)
        if found is None and self._opened.head:
            found = history.filtered_file_at(self._context.git, self._opened.head, self._name)
        return found

    def _merged(self) -> str:
        base = self._base()
        if self._change.kind == "added" or base is None:
            raise Unmergeable("you and the job both wrote it, and git does not track it")
        if os.path.islink(self._change.source) or os.path.islink(self._real) or not os.path.isfile(self._real):
            raise Unmergeable("it is a link or of another kind now")
        text = self._merged_text(Path(self._real).read_bytes(), base)
        if text is None:
            raise Unmergeable("you and the job changed the same lines")
        return self._stage_bytes(text, f"{self._staged}.merged")

    def _merged_text(self, ours: bytes, base: bytes) -> bytes | None:
        return self._merged_texts(ours, base, Path(self._change.source).read_bytes())

    def _merged_texts(self, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        """Boxes of a task list are merged one by one: a tick on either side wins."""
        is_list = self._change.path in self._context.files.task_lists
        if is_list and not early_code.is_reworded(ours, theirs):
            return early_code.with_ticks(ours, theirs)
        return _merge3(self._context.git, ours, base, theirs)

    def _with_line_endings(self, source: str) -> str:
        """Line endings are the project's: an agent that wrote LF into a CRLF file changed nothing by that."""
        with open(self._real, "rb") as stream:
            before = stream.read(1 << 16)
        if b"\r\n" not in before or before.count(b"\n") != before.count(b"\r\n"):
            return source
        data = Path(source).read_bytes()
        if b"\r" in data or b"\n" not in data or b"\0" in data:
            return source
        return self._stage_bytes(data.replace(b"\n", b"\r\n"), f"{self._staged}.crlf")

    def _stage(self, source: str, target: str) -> str:
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            return target
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
        return target

    def _stage_bytes(self, data: bytes, target: str) -> str:
        Path(target).write_bytes(data)
        with suppress(OSError):
            shutil.copymode(self._change.source, target)
        return target


def _merge3(git: Repository, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Both changes of a text, None if they touch the same lines or it is not a text."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    if b"\0" in ours + base + theirs:
        return None
    return history.merge_texts(git, ours, base, theirs)


def entry_digest(path: str) -> str:
    """Of a file's bytes or a link's target, '' if there is neither."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISLNK(mode):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).hexdigest()
    return atomic_files.file_digest(path) if stat.S_ISREG(mode) else ""


def _same(one: str, other: str) -> bool:
    try:
        return layers.same_entry(one, other)
    except OSError:
        return False


def _same_content(one: str, other: str) -> bool:
    return entry_digest(one) == entry_digest(other)


def _mode(source: str, real: str) -> int:
    """A new file has the mode that the job gave it; another keeps its own, with the right to execute as the job left it."""
    if os.path.islink(source):
        return 0o777
    wanted = stat.S_IMODE(os.stat(source).st_mode) & 0o777
    if os.path.islink(real) or not os.path.isfile(real):
        return wanted | 0o600
    now = stat.S_IMODE(os.stat(real).st_mode)
    if wanted & 0o100:
        return now | (0o111 & wanted)
    return now & ~0o111
