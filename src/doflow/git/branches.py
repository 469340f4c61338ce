"""Before the first step: who commits, a new branch, the switch to one.

Without GitPython; and where refs are plain files, a branch is made without any git process, under git's own locks: each
process would cost as much as a small step.
"""

from __future__ import annotations

import os

from doflow.git import ref_update as swap, repository as look, runner_quick as quick
from doflow.git.head import Head
from doflow.util.errors import WorldError

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
    parts = name.split("/")
    if name != "HEAD" and all(map(_simple, parts)):
        return f"refs/heads/{name}"  # what doflow itself names branches needs no second opinion
    if name == "@" or quick.attempt(head, "check-ref-format", "--branch", name)[0]:
        raise WorldError(
            f"{name!r} cannot be the name of a branch", hint="letters, digits, - and / are safe: --branch=my-feature"
        )
    return f"refs/heads/{name}"


def free(name: str, refs: list[str]) -> None:
    """Refuse a name that git has no room for beside these refs: what is a branch is not the folder of another one."""
    ref = f"refs/heads/{name}"
    for other in refs:
        if other.startswith(f"{ref}/") or ref.startswith(f"{other}/"):
            there = other.removeprefix("refs/heads/")
            raise WorldError(
                f"there can be no branch {name} beside the branch {there}: git keeps them as folders and files",
                hint="choose another name: --branch=my-feature",
            )


def _simple(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum() and not name.startswith("-")


def _create(head: Head, ref: str) -> None:
    said, simple = "doflow: new branch", _simple(ref.removeprefix("refs/heads/"))
    if not simple or not swap.ref(head, ref, "", head.commit, _told.get(head.git_dir, ""), said):
        quick.quick(head, "update-ref", "-m", said, ref, head.commit, "0" * len(head.commit))


def _check_out(head: Head, name: str, ref: str) -> Head:
    said = f"doflow: on branch {name}"
    if not head.commit or not swap.symbolic(head, ref, _told.get(head.git_dir, ""), said):
        quick.quick(head, "symbolic-ref", "-m", said, "HEAD", ref)
    return look.find(head.root)
