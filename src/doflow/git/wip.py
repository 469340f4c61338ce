"""Keeping the person's uncommitted work under a ref of ours, without touching their index or work tree."""

from __future__ import annotations

import os
import shutil
import stat

from doflow.git import private_index as private, ref_update as swap, repository as look
from doflow.git.runner import Git
from doflow.util import atomic_files as files

_US = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "doflow"), ("EMAIL", "doflow@localhost"))
}


def wip(git: Git, name: str, clean: bool = False) -> str:
    """Keep tracked and untracked work (not the ignored) under `refs/doflow/wip/<name>`; gives the id it points at.

    Neither the person's index nor the work tree is touched. What is staged and differs is the second parent. With
    nothing to keep the ref holds HEAD itself, so that its objects outlive whatever an agent does. `clean`: the caller
    has seen that the work tree is what HEAD holds.
    """
    base = look.find(git.head.root).commit
    if clean and base and not _index_differs(git, base):
        _hold(git, f"refs/doflow/wip/{name}", base)
        return base
    tree = _work(git, base)
    held = _tree_of(git, base)
    kept = base
    if tree != held:
        kept = _commit(git, tree, f"doflow: uncommitted work before {name}", base, _staged(git, base, held, tree))
    elif staged := _staged(git, base, held, tree):
        kept = staged
    if kept:
        git.run("update-ref", f"refs/doflow/wip/{name}", kept)
    return kept


def _index_differs(git: Git, base: str) -> bool:
    """Asked once for each state of the index."""
    mark = (base, private.signature(os.path.join(git.head.git_dir, "index")))
    if git.staged != mark:
        if git.call("diff-index", "--cached", "--quiet", base)[0]:
            return True
        git.staged = mark
    return False


def _hold(git: Git, ref: str, commit: str) -> None:
    """As `git update-ref` does it; where refs are plain files without a process."""
    if look.commit_of(git.head, ref) == commit:
        return
    path = os.path.join(git.head.common_dir, ref)
    if swap.plain(git.head) and not os.path.lexists(path + ".lock"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write(path, commit.encode() + b"\n", sync=False)
    else:
        git.run("update-ref", ref, commit)


def names(git: Git, kept: str) -> frozenset[str]:
    """The paths (from the top of the work tree) whose uncommitted state `kept` holds."""
    if not kept:
        return frozenset()
    base = look.find(git.head.root).commit
    if kept == base:
        return frozenset()
    against = base or private.EMPTY[len(kept)]
    listed = git.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", "--no-commit-id", against, kept)
    return frozenset(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _work(git: Git, base: str) -> str:
    """The tree of all that is in the work tree now, by an index of our own that remembers what it read."""
    index = private.path(git, "wip")
    if not private.signature(index) or git.kept != (base, private.signature(index)):
        private.remove(index)
        private.remove(index + ".lock")
        git.run("read-tree", base or "--empty", index=index)
    listed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", index=index)
    names = [os.fsdecode(name) for name in dict.fromkeys(listed.split(b"\0")) if name]
    if taken := [name for name in names if _storable(os.path.join(git.head.top, name))]:
        private.add(git, index, taken)
    tree = git.run("write-tree", index=index).decode().strip()
    git.kept = (base, private.signature(index))
    return tree


def _storable(path: str) -> bool:
    """A nested repository (listed with a slash), a pipe or a file we may not read cannot be kept by git."""
    if path.endswith("/"):
        return False
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True  # deleted
    return stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and os.access(path, os.R_OK))


def _tree_of(git: Git, base: str) -> str:
    if not base:
        return private.EMPTY[private.width(git)]
    return git.run("rev-parse", "--verify", "--end-of-options", f"{base}^{{tree}}").decode().strip()


def _staged(git: Git, base: str, held: str, tree: str) -> str:
    """A commit of what the person staged, '' if that is what HEAD or the work tree holds (or has conflicts)."""
    theirs = os.path.join(git.head.git_dir, "index")
    copy = private.path(git, "staged")
    if not os.path.isfile(theirs):
        return ""
    shutil.copyfile(theirs, copy)
    try:
        code, out, _ = git.call("write-tree", index=copy)
    finally:
        private.remove(copy)
    staged = out.decode().strip()
    return "" if code or staged in (held, tree) else _commit(git, staged, "doflow: what was staged", base)


def _commit(git: Git, tree: str, subject: str, *parents: str) -> str:
    named = [word for parent in parents if parent for word in ("-p", parent)]
    return git.run("commit-tree", tree, *named, "-F", "-", input=subject.encode(), env=_US).decode().strip()
