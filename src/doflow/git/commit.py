"""Committing exactly the paths we name: by plumbing, with a private index, and compare-and-swap on the branch.

The person's work tree is never written, their index only where it equalled the commit before.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence

from doflow.git import (
    private_index as private,
    ref_update as swap,
    repository as look,
    tree_writer as trees,
    tree_writer_objects as objects,
)
from doflow.git.head import Head
from doflow.git.runner import Git
from doflow.git.runner_quick import failed
from doflow.git.wip import wip
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError

__all__ = ["adopted", "commit", "refresh", "wip"]

_PATIENCE = 3.0


def commit(
    git: Git,
    paths: Sequence[str],
    message: str,
    on_ready: Callable[[str, str], None],
    expect: str | None = None,
    verify: Callable[[str, str], str] | None = None,
) -> str:
    """Commit what the work tree holds at `paths` (from its top); '' if that is what HEAD holds already.

    `on_ready(base, new)` is called when the commit exists but the branch does not point at it yet. `expect` is the
    commit that HEAD must still be at. `verify(index, message)` sees what is to be committed and gives the message; it
    raises to refuse.
    """
    head = _ready(git, expect)
    base = head.commit
    _check(git, paths)
    if verify is None:
        before, tree = trees.build(git, base, paths) or _by_index(git, base, paths)
    else:
        before, _ = _by_index(git, base, paths)
        message = verify(private.path(git), message)
        tree = git.run("write-tree", index=private.path(git)).decode().strip()
    if tree == before:
        _note(git, base, tree)
        return ""
    new = objects.write(git, tree, base, message)
    files.syncfs(head.common_dir)
    on_ready(base, new)
    _move(git, head, new)
    _note(git, new, tree)
    refresh(git, base, new)
    if git.moved is not None:
        git.moved()
    return new


def _by_index(git: Git, base: str, paths: Sequence[str]) -> tuple[str, str]:
    """(tree of `base`, tree with these paths), by git's own index, a private one."""
    git.trees = None
    before = private.seed(git, base)
    private.forget(git)
    private.add(git, private.path(git), list(paths))
    tree = git.run("write-tree", index=private.path(git)).decode().strip()
    return before or private.EMPTY[len(tree)], tree


def _note(git: Git, commit: str, tree: str) -> None:
    """What was just put together is the tree of this commit: the next one need not read it again."""
    if git.trees is None:
        private.settle(git, commit, tree)
    else:
        trees.settle(git, commit)


def _ready(git: Git, expect: str | None) -> Head:
    """HEAD as it is now; refuses every state in which a commit would be wrong."""
    head = look.find(git.head.root)
    if head.git_dir != git.head.git_dir or head.inode != git.head.inode:
        raise WorldError(
            f"the git folder of {head.top} was replaced while the step ran (now {head.git_dir})",
            hint="nothing was committed; look at it before you go on: ls -la .git",
        )
    problem = look.state(head)
    until = time.monotonic() + _PATIENCE
    while problem and problem == look.locked(head) and time.monotonic() < until:
        time.sleep(0.05)
        problem = look.state(head)
    if problem:
        raise WorldError(f"nothing was committed: {problem}", hint="then run the same command again")
    if head.ref != git.head.ref:
        raise _moved(git, f"branch {git.head.branch or '(none)'}", f"branch {head.branch}")
    if expect is not None and head.commit != expect:
        raise _moved(git, expect[:12] or "no commit yet", head.commit[:12] or "no commit yet")
    return head


def _moved(git: Git, before: str, now: str) -> WorldError:
    return WorldError(
        f"nothing was committed: HEAD moved from {before} to {now} while the step ran",
        hint=f"look at what came in (git log -3), go back to {git.head.branch} if needed, and run again",
    )


def _check(git: Git, paths: Sequence[str]) -> None:
    checked: set[str] = set()
    for path in paths:
        _refuse(git.head.top, path, checked)


def _refuse(top: str, path: str, checked: set[str]) -> None:
    """What git would take silently and wrongly, or not at all."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise WorldError(f"{path!r} cannot be committed: it is not a path inside the work tree", hint="git status")
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder in checked:
            continue
        checked.add(folder)
        if os.path.lexists(os.path.join(top, folder, ".git")) and not os.path.islink(os.path.join(top, folder)):
            raise _nested(folder)
    try:
        mode = os.lstat(os.path.join(top, path)).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        raise WorldError(
            f"{path!r} is a pipe, a socket or a device: git cannot hold it", hint=f"remove it: rm '{path}'"
        )


def _nested(folder: str) -> WorldError:
    return WorldError(
        f"{folder!r} is a git repository of its own: its files cannot be committed from outside",
        hint=f"remove its git folder (rm -r '{folder}/.git'), or ignore it (echo '/{folder}/' >> .gitignore)",
    )


def _move(git: Git, head: Head, new: str) -> None:
    said = "doflow: commit"
    if swap.ref(head, head.ref, head.commit, new, objects.people(git)[1], said):
        return
    args = ("update-ref", "-m", said, head.ref, new, head.commit or "0" * len(new))
    code, _, err = git.call(*args)
    if code and "cannot lock ref" in err:
        now = look.find(head.root)
        if now.commit != head.commit:
            raise _moved(git, head.commit[:12] or "no commit yet", now.commit[:12] or "no commit yet")
    if code:
        raise failed(args, code, err)
    files.syncfs(head.common_dir)


def refresh(git: Git, base: str, new: str) -> None:
    """Bring the person's index from `base` to `new`, only where it equalled `base`. Safe to repeat."""
    old = base or private.EMPTY[len(new)]
    until = time.monotonic() + _PATIENCE
    while True:
        code, _, err = git.call("read-tree", "-i", "-m", old, new)
        if code and "index.lock" not in err:
            code, err = _refresh_each(git, old, new)
        if not code:
            return
        if "index.lock" not in err or time.monotonic() > until:
            raise WorldError(
                f"{new[:12]} is committed, but your index could not follow: {' '.join(err.split())}",
                hint="when no other git runs, run the same command again: nothing is lost",
            )
        time.sleep(0.05)


def _refresh_each(git: Git, old: str, new: str) -> tuple[int, str]:
    """Entry by entry: the person staged something else for a path of this commit, or has conflicts elsewhere."""
    theirs = set(_raw(git.run("diff-index", "--cached", "--raw", "-z", "--no-renames", old)))
    lines = b""
    for path, meta in _raw(git.run("diff-tree", "-r", "--raw", "-z", "--no-renames", old, new)).items():
        if path not in theirs:
            _, mode, _, blob, _ = meta.split(b" ")
            lines += (b"0" if mode == b"000000" else mode) + b" " + blob + b"\t" + path + b"\0"
    if not lines:
        return 0, ""
    code, _, err = git.call("update-index", "-z", "--index-info", input=lines)
    return code, err


def _raw(listing: bytes) -> dict[bytes, bytes]:
    parts = listing.split(b"\0")
    return dict(zip(parts[1::2], parts[::2], strict=False))


def adopted(git: Git, base: str, new: str) -> bool:
    """Whether `new` (made on `base`) is in HEAD's history: asked after a crash between intent and done.

    If HEAD is `new` itself, the crash may have come before the person's index followed: that is made good here.
    """
    head = look.find(git.head.root)
    if not new or not head.commit or new == base:
        return False
    if head.commit == new:
        refresh(git, base, new)
        return True
    return git.call("merge-base", "--is-ancestor", new, head.commit)[0] == 0
