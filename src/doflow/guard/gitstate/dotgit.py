"""The `.git` of a project is the one it was: a folder put in its place is noticed, one that was moved is fetched back."""

from __future__ import annotations

import os
import stat

from doflow.git.head import Head
from doflow.guard.quarantine import Keep
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Dot:
    """What stood at `.git`: a folder (by its inode), a file or a link (by its bytes)."""

    kind: int
    text: bytes


def look(head: Head) -> Dot:
    path = os.path.join(head.top, ".git")
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return Dot(0, b"")
    if stat.S_ISLNK(mode):
        return Dot(stat.S_IFLNK, os.fsencode(os.readlink(path)))
    if not stat.S_ISREG(mode):
        return Dot(stat.S_IFMT(mode), b"")
    with open(path, "rb", opener=_quietly) as stream:
        return Dot(stat.S_IFREG, stream.read(1 << 16))


def mend(head: Head, was: Dot, keep: Keep) -> bool:
    """True if it had to be put back. What cannot be put back stops the run, loudly."""
    if look(head) == was and _is(head.git_dir, head):
        return False
    home = head.git_dir if was.kind != stat.S_IFDIR else os.path.join(head.top, ".git")
    found = head.git_dir if _is(head.git_dir, head) else _elsewhere(head)
    if not found or (was.kind != stat.S_IFDIR and found != head.git_dir):
        raise _lost(head)
    top = files.open_folder(head.top)
    try:
        if found != home:
            _free(top, keep)
            os.rename(found, home)
        elif look(head) != was:
            _free(top, keep)
            if was.kind == stat.S_IFLNK:
                os.symlink(os.fsdecode(was.text), ".git", dir_fd=top)
            else:
                files.replace(top, ".git", was.text, 0o644, sync=True)
    finally:
        os.close(top)
    return True


def _free(top: int, keep: Keep) -> None:
    try:
        os.stat(".git", dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        return
    keep(top, ".git", ".git")


def _is(path: str, head: Head) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == head.inode and os.path.isdir(os.path.join(head.common_dir, "objects"))


def _elsewhere(head: Head) -> str:
    """Moved to another name in the project, beside it or one folder down."""
    for folder in (head.top, os.path.dirname(head.top), *_folders(head.top)):
        for path in _folders(folder):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) == head.inode and os.path.isdir(os.path.join(path, "objects")):
                return path
    return ""


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lost(head: Head) -> WorldError:
    return WorldError(
        f"the git folder {head.git_dir} was deleted, emptied or replaced while an agent worked",
        hint=(
            "doflow touches nothing more; your files are as the agent left them\n"
            "  bring .git back from a clone or a backup, then run the same command; `sandbox: bwrap` makes this impossible"
        ),
    )


def _quietly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
