"""Keeps the user's uncommitted work under a ref of ours, without touching their index or working tree."""

from __future__ import annotations

import os
import shutil
import stat
from weakref import WeakKeyDictionary

from doflow.git import head_reader, private_index
from doflow.git.repository import Repository
from doflow.util.file_signature import FileSignature

_US = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "doflow"), ("EMAIL", "doflow@localhost"))
}

#: per repository: the commit, and the signature of our index of the working tree
_kept: WeakKeyDictionary[Repository, tuple[str, FileSignature | None]] = WeakKeyDictionary()
#: per repository: the commit, and the signature of the user's index that equals it
_unstaged: WeakKeyDictionary[Repository, tuple[str, FileSignature | None]] = WeakKeyDictionary()


def keep_work(git: Repository, name: str, clean: bool = False) -> str:
    """Keep tracked and untracked work (not ignored files) under `refs/doflow/wip/<name>`; returns its commit.

    Neither the user's index nor the working tree is touched. Staged changes that differ are the second parent. With
    nothing to keep the ref points at HEAD, so that its objects survive whatever an agent does. `clean`: the caller has
    checked that the working tree equals HEAD.
    """
    base = head_reader.find_head(git.head.root).commit
    if clean and base and not _index_differs(git, base):
        git.run("update-ref", f"refs/doflow/wip/{name}", base)
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


def _index_differs(git: Repository, base: str) -> bool:
    """Checked once for each state of the index."""
    mark = (base, private_index.signature(os.path.join(git.head.git_dir, "index")))
    if _unstaged.get(git) != mark:
        if git.call("diff-index", "--cached", "--quiet", base)[0]:
            return True
        _unstaged[git] = mark
    return False


def kept_paths(git: Repository, kept: str) -> frozenset[str]:
    """The paths (from the top of the working tree) whose uncommitted state is in `kept`."""
    if not kept:
        return frozenset()
    base = head_reader.find_head(git.head.root).commit
    if kept == base:
        return frozenset()
    against = base or private_index.EMPTY[len(kept)]
    listed = git.run("diff-tree", "-r", "--name-only", "-z", "--no-renames", "--no-commit-id", against, kept)
    return frozenset(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _work(git: Repository, base: str) -> str:
    """The tree of the whole working tree, through our own index, which caches what it read."""
    index = private_index.index_path(git, "wip")
    if not private_index.signature(index) or _kept.get(git) != (base, private_index.signature(index)):
        private_index.discard(index)
        git.run("read-tree", base or "--empty", index=index)
    listed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", index=index)
    names = [os.fsdecode(name) for name in dict.fromkeys(listed.split(b"\0")) if name]
    if taken := [name for name in names if _storable(os.path.join(git.head.top, name))]:
        private_index.add_paths(git, index, taken)
    tree = git.run("write-tree", index=index).decode().strip()
    _kept[git] = (base, private_index.signature(index))
    return tree


def _storable(path: str) -> bool:
    """A nested repository (listed with a slash), a pipe or an unreadable file cannot be stored by git."""
    if path.endswith("/"):
        return False
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True  # deleted
    return stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and os.access(path, os.R_OK))


def _tree_of(git: Repository, base: str) -> str:
    if not base:
        return private_index.EMPTY[private_index.id_length(git)]
    return git.run("rev-parse", "--verify", "--end-of-options", f"{base}^{{tree}}").decode().strip()


def _staged(git: Repository, base: str, held: str, tree: str) -> str:
    """A commit of what the user staged, '' if it equals HEAD or the working tree (or has conflicts)."""
    theirs = os.path.join(git.head.git_dir, "index")
    copy = private_index.index_path(git, "staged")
    if not os.path.isfile(theirs):
        return ""
    shutil.copyfile(theirs, copy)
    try:
        code, out, _ = git.call("write-tree", index=copy)
    finally:
        private_index.discard(copy)
    staged = out.decode().strip()
    return "" if code or staged in (held, tree) else _commit(git, staged, "doflow: what was staged", base)


def _commit(git: Repository, tree: str, subject: str, *parents: str) -> str:
    named = [word for parent in parents if parent for word in ("-p", parent)]
    return git.run("commit-tree", tree, *named, "-F", "-", input=subject.encode(), env=_US).decode().strip()
