"""Before the first step: who commits, a new branch, the switch to one.

Without GitPython; and where refs are plain files, a branch is made without any git process, under git's own locks: each
process would cost as much as a small step.
"""

from __future__ import annotations

import os

from doflow import files
from doflow.errors import WorldError
from doflow.repo import look, quick, refs
from doflow.repo.head import Head

_COMMITTER = ("var", "GIT_COMMITTER_IDENT")
_asked: dict[str, quick.Asked] = {}
_told: dict[str, str] = {}  # git folder → `Name <mail> time zone`, for the reflog


def foresee(head: Head) -> None:
    """Ask now who commits; `identity` takes the answer when it is there."""
    if head.git_dir not in _asked and not _other_author():
        _asked[head.git_dir] = quick.start(head, *_COMMITTER)


def identity(head: Head) -> str:
    """`Name <mail>` that git would commit with, '' if nobody told git: none is ever invented."""
    if _other_author() and quick.attempt(head, "var", "GIT_AUTHOR_IDENT")[0]:
        return ""
    asked = _asked.pop(head.git_dir) if head.git_dir in _asked else quick.start(head, *_COMMITTER)
    code, out, _ = quick.end(asked)
    if code:
        return ""
    _told[head.git_dir] = out.decode("utf-8", "surrogateescape").strip()
    return out.decode("utf-8", "replace").strip().rpartition("> ")[0] + ">"


def _other_author() -> bool:
    return any(name.startswith("GIT_COMMITTER_") for name in os.environ)


def make_branch(head: Head, name: str, at: str = "") -> Head:
    """A new branch where HEAD stands, checked out; the work tree and the index stay as they are."""
    ref = valid(head, name)
    if at and at != head.commit:
        raise WorldError(
            f"branch {name} cannot begin at {at[:12]}: HEAD is at {head.commit[:12] or 'no commit yet'}",
            hint=f"go there first: git switch --detach {at[:12]}",
        )
    if head.commit and look.commit_of(head, ref):
        raise WorldError(f"there is a branch {name} already", hint=f"use it: git switch {name}")
    if head.commit:
        _create(head, ref)
    return _check_out(head, name, ref)


def switch_branch(head: Head, name: str) -> Head:
    """Check out a branch that points at the very commit of HEAD, so that no file changes."""
    ref = valid(head, name)
    if ref == head.ref:
        return head
    commit = look.commit_of(head, ref)
    if not commit or commit != head.commit:
        what = f"is at {commit[:12]}, HEAD at {head.commit[:12]}" if commit else "does not exist"
        hint = f"go there yourself: git switch {name}" if commit else f"make it: git switch -c {name}"
        raise WorldError(f"branch {name} {what}", hint=hint)
    return _check_out(head, name, ref)


def valid(head: Head, name: str) -> str:
    """The full name of a branch; a name that git would refuse is refused."""
    if _simple(name):
        return f"refs/heads/{name}"  # what doflow itself names branches needs no second opinion
    if name.startswith("-") or quick.attempt(head, "check-ref-format", f"refs/heads/{name}")[0]:
        raise WorldError(
            f"{name!r} cannot be the name of a branch", hint="letters, digits, - and / are safe: --branch my-feature"
        )
    return f"refs/heads/{name}"


def _simple(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum() and not name.startswith("-")


def _create(head: Head, ref: str) -> None:
    path, said, none = os.path.join(head.common_dir, ref), "doflow: new branch", "0" * len(head.commit)
    simple = _simple(ref.removeprefix("refs/heads/")) and not os.path.lexists(path)
    if simple and _as_files(head) and _replace(path, head.commit):
        _log(head, os.path.join(head.common_dir, "logs", ref), none, said)
    else:
        quick.quick(head, "update-ref", "-m", said, ref, head.commit, none)


def _check_out(head: Head, name: str, ref: str) -> Head:
    said = f"doflow: on branch {name}"
    if head.commit and _as_files(head) and _replace(os.path.join(head.git_dir, "HEAD"), f"ref: {ref}"):
        _log(head, os.path.join(head.git_dir, "logs", "HEAD"), head.commit, said)
    else:
        quick.quick(head, "symbolic-ref", "-m", said, "HEAD", ref)
    return look.find(head.root)


def _as_files(head: Head) -> bool:
    """Are refs plain files here, with nothing about them that only git knows how to do?"""
    place = os.path.join(head.git_dir, "HEAD")
    shared = "sharedrepository" in refs.small(os.path.join(head.common_dir, "config"), 1 << 20).lower()
    return not head.reftable and not shared and head.git_dir in _told and not os.path.islink(place)


def _replace(path: str, text: str) -> bool:
    """As git does it: a lock file that nobody else holds, on disk, then renamed. False: let git try, and say why not."""
    lock = f"{path}.lock"
    try:
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError:
        return False
    try:
        files.put(fd, text.encode("utf-8", "surrogateescape") + b"\n")
        os.fsync(fd)
        os.rename(lock, path)
    except OSError:
        os.unlink(lock)
        return False
    finally:
        os.close(fd)
    return True


def _log(head: Head, path: str, old: str, said: str) -> None:
    """The reflog, where there is one."""
    if not os.path.isfile(os.path.join(head.git_dir, "logs", "HEAD")):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    line = f"{old} {head.commit} {_told[head.git_dir]}\t{said}\n"
    with open(path, "ab") as stream:
        stream.write(line.encode("utf-8", "surrogateescape"))
