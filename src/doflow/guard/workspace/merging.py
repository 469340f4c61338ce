"""Brings the change of a job together with what the person did to the same file meanwhile."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from doflow.git import history
from doflow.git.repository import Repository
from doflow.guard import early_code
from doflow.guard.workspace import layers
from doflow.guard.workspace.given_files import GivenFiles
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import Opened
from doflow.runs.context import RunContext


class Unmergeable(Exception):
    """Why two versions of a file cannot be brought together."""


class Merge:
    """One accepted change, brought together with the project's file as it is now."""

    def __init__(
        self, context: RunContext, opened: Opened, given: GivenFiles, head: str, change: LayerChange, staged: str
    ) -> None:
        self._context, self._opened, self._given, self._head = context, opened, given, head
        self._change, self._staged = change, staged
        self._is_merged = False
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
            source, self._is_merged = self._merged(), True
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
        if write is None or not self._is_merged:
            return None
        base = self._base()
        text = None if base is None else self._merged_text(self._at_head(), base)
        if text is None:
            raise Unmergeable("a commit made meanwhile changed the same lines")
        return self._stage_bytes(text, f"{self._staged}.commit")

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
        """Is the project's file as it was when the job was opened? A folder that was moved here brings old files."""
        try:
            status = os.lstat(self._real)
        except OSError:
            return True
        old = status.st_ctime_ns < self._opened.at
        if old and self._folders_are_old():
            return True
        base = self._base()
        if base is None:
            return old
        if stat.S_ISLNK(status.st_mode):
            return os.fsencode(os.readlink(self._real)) == base
        return stat.S_ISREG(status.st_mode) and Path(self._real).read_bytes() == base

    def _folders_are_old(self) -> bool:
        folder, root = os.path.dirname(self._real), str(self._context.root)
        while len(folder) > len(root):
            if os.lstat(folder).st_ctime_ns >= self._opened.at:
                return False
            folder = os.path.dirname(folder)
        return True

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
    if not stat.S_ISREG(mode):
        return ""
    with open(path, "rb") as stream:  # line endings count here
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _same(one: str, other: str) -> bool:
    try:
        return layers.same_entry(one, other)
    except OSError:
        return False


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
