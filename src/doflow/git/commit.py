"""Commits exactly the named paths, with compare-and-swap on the branch.

The working tree is never written, the user's index only where it equals the previous commit. The tree is built from the
changed paths: the work depends on them, not on the size of the repository.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from doflow.git import head_reader, private_index
from doflow.git.head import Head
from doflow.git.repository import Repository, failure
from doflow.util import atomic_files
from doflow.util.errors import WorldError

_PATIENCE = 3.0


def commit(
    git: Repository,
    paths: Sequence[str],
    message: str,
    on_ready: Callable[[str, str], None],
    expect: str | None = None,
    verify: Callable[[str, str], str] | None = None,
    contents: Contents | None = None,
) -> str:
    """Commit the working tree's content of `paths` (from its top); '' if HEAD already has it. `contents`: what some of them
    get instead.

    `on_ready(base, new)` is called when the commit exists but the branch does not point at it yet. `expect` is the
    commit that HEAD must still be at. `verify(index, message)` gets the index to be committed and returns the message;
    it raises to refuse.
    """
    head = _ready(git, expect)
    base = head.commit
    _check(git, paths)
    tree = build_tree(git, base, paths, contents or {}) if verify is None else ""
    if verify is not None:
        before = _full_index(git, base, paths, contents or {})
        message = verify(private_index.index_path(git), message)
        tree = git.run("write-tree", index=private_index.index_path(git)).decode().strip()
        tree = "" if tree == before else tree
    if not tree:
        return ""
    new = _write_commit(git, tree, base, message)
    atomic_files.syncfs(head.common_dir)
    on_ready(base, new)
    _move(git, head, new)
    if verify is None:
        remember_commit(git, new)
    refresh_index(git, base, new)
    git.tell_commit()
    return new


def _full_index(git: Repository, base: str, paths: Sequence[str], contents: Contents) -> str:
    """Fill the private index with what will be committed, for hooks; returns the tree of `base`."""
    before = private_index.seed(git, base)
    private_index.forget(git)
    private_index.add_paths(git, private_index.index_path(git), list(paths))
    given = {os.fsencode(path): (mode.encode(), ident.encode()) for path, (mode, ident) in contents.items()}
    private_index.update_paths(git, private_index.index_path(git), [], given)
    return before or private_index.EMPTY[private_index.id_length(git)]


def _write_commit(git: Repository, tree: str, base: str, message: str) -> str:
    """The id of a new commit of `tree` on `base` ('' = the first one), with the configured identity."""
    text = message.replace("\0", "").encode("utf-8", "replace").rstrip(b"\n") + b"\n"
    args = ("commit-tree", tree, *(("-p", base) if base else ()), "-F", "-")
    code, out, err = git.call(*args, input=text)
    if code and ("identity" in err or "auto-detection is disabled" in err or "empty ident" in err):
        raise WorldError(
            "nothing was committed: git identity is not configured (user.name, user.email)",
            hint='git config --global user.name "Your Name" && git config --global user.email you@example.com',
        )
    if code:
        raise failure(args, code, err)
    return out.decode().strip()


def _ready(git: Repository, expect: str | None) -> Head:
    """The current HEAD; refuses every state in which a commit would be wrong."""
    head = head_reader.find_head(git.head.root)
    if head.git_dir != git.head.git_dir or head.inode != git.head.inode:
        raise WorldError(
            f"the git folder of {head.top} was replaced while the step ran (now {head.git_dir})",
            hint="nothing was committed; check it before you continue: ls -la .git",
        )
    problem = head_reader.commit_obstacle(head)
    until = time.monotonic() + _PATIENCE
    while problem and problem == head_reader.lock_obstacle(head) and time.monotonic() < until:
        time.sleep(0.05)
        problem = head_reader.commit_obstacle(head)
    if problem:
        raise WorldError(f"nothing was committed: {problem}", hint="fix that, then run the same command again")
    if head.ref != git.head.ref:
        raise _moved(git, f"branch {git.head.branch or '(none)'}", f"branch {head.branch}")
    if expect is not None and head.commit != expect:
        raise _moved(git, expect[:12] or "no commit yet", head.commit[:12] or "no commit yet")
    return head


def _moved(git: Repository, before: str, now: str) -> WorldError:
    return WorldError(
        f"nothing was committed: HEAD moved from {before} to {now} while the step ran",
        hint=f"check the new commits (git log -3), switch back to {git.head.branch} if needed, and run again",
    )


def _check(git: Repository, paths: Sequence[str]) -> None:
    checked: set[str] = set()
    for path in paths:
        _refuse(git.head.top, path, checked)


def _refuse(top: str, path: str, checked: set[str]) -> None:
    """Refuse what git would add wrongly without a message, or not at all."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise WorldError(f"{path!r} cannot be committed: it is not a path inside the working tree", hint="git status")
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
            f"{path!r} is a pipe, a socket or a device: git cannot store it", hint=f"remove it: rm '{path}'"
        )


def _nested(folder: str) -> WorldError:
    return WorldError(
        f"{folder!r} is a nested git repository: its files cannot be committed from outside",
        hint=f"remove its git folder (rm -r '{folder}/.git'), or ignore it (echo '/{folder}/' >> .gitignore)",
    )


def _move(git: Repository, head: Head, new: str) -> None:
    """Move the branch to `new` if it is still at `head`; durable when this returns."""
    args = ("update-ref", "-m", "doflow: commit", head.ref, new, head.commit or "0" * len(new))
    code, _, err = git.call(*args)
    if code and "cannot lock ref" in err:
        now = head_reader.find_head(head.root)
        if now.commit != head.commit:
            raise _moved(git, head.commit[:12] or "no commit yet", now.commit[:12] or "no commit yet")
    if code:
        raise failure(args, code, err)
    _sync_ref(head)


def _sync_ref(head: Head) -> None:
    """git has flushed the ref itself (`core.fsync`); the folders above it follow, so that its rename is on disk too."""
    folder = os.path.join(head.common_dir, "reftable/table" if head.reftable else head.ref)
    try:
        while (folder := os.path.dirname(folder)) != head.common_dir:
            atomic_files.sync_folder(folder)
    except OSError as error:
        raise atomic_files.io_error("write", folder, error) from error


def refresh_index(git: Repository, base: str, new: str) -> None:
    """Update the user's index from `base` to `new`, only where it equals `base`. Safe to repeat."""
    old = base or private_index.EMPTY[len(new)]
    until = time.monotonic() + _PATIENCE
    while True:
        code, _, err = git.call("read-tree", "-i", "-m", old, new)
        if code and "index.lock" not in err:
            code, err = _refresh_each(git, old, new)
        if not code:
            return
        if "index.lock" not in err or time.monotonic() > until:
            raise WorldError(
                f"{new[:12]} is committed, but your index could not be updated: {' '.join(err.split())}",
                hint="when no other git process is running, run the same command again: nothing is lost",
            )
        time.sleep(0.05)


def _refresh_each(git: Repository, old: str, new: str) -> tuple[int, str]:
    """Entry by entry: the user staged something else for a path of this commit, or has conflicts elsewhere."""
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


def is_adopted(git: Repository, base: str, new: str) -> bool:
    """Whether `new` (made on `base`) is in HEAD's history: asked after a crash between intent and done.

    If HEAD is `new` itself, the crash may have come before the user's index was updated: that is done here.
    """
    head = head_reader.find_head(git.head.root)
    if not new or not head.commit or new == base:
        return False
    if head.commit == new:
        refresh_index(git, base, new)
        return True
    return git.call("merge-base", "--is-ancestor", new, head.commit)[0] == 0


#: (mode, object id)
Entry = tuple[bytes, bytes]
#: path from the top of the working tree -> mode and id of a stored object
Contents = Mapping[str, Sequence[str]]
#: folder -> name -> entry; b"" is the top
Folders = dict[bytes, dict[bytes, Entry]]

_ATTRIBUTES = b".gitattributes"
_FOLDER = b"040000"
_KINDS = {_FOLDER: b"tree", b"160000": b"commit"}
_BATCH_PATHS = 1000
_BATCH_BYTES = 100_000
#: per repository: the folders of our last commit
_known: WeakKeyDictionary[Repository, tuple[str, Folders]] = WeakKeyDictionary()


def build_tree(git: Repository, base: str, paths: Sequence[str], contents: Contents) -> str:
    """The id of the tree of `base` ('' = no commit yet) with the working tree's content of `paths`; '' if it is the same."""
    above = {folder for path in paths for folder in _folders_above(os.fsencode(path))} | {b""}
    folders = _list_folders(git, base, above)
    with git.conversation("mktree", "-z", "--batch", "--missing") as mktree:  # it starts while git stores the files
        changes = _changes(git, folders, paths, contents)
        _apply(folders, changes)
        tree = _write_folders(mktree, folders) if changes else ""
    if changes:
        _known[git] = ("", folders)
    return tree


def remember_commit(git: Repository, commit: str) -> None:
    """The last built tree belongs to this commit: the next commit on it needn't list the same folders again."""
    _known[git] = (commit, _known[git][1])


def _folders_above(path: bytes) -> list[bytes]:
    """The folders above a path, the top first."""
    parts = path.split(b"/")[:-1]
    return [b"/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _list_folders(git: Repository, base: str, wanted: set[bytes]) -> Folders:
    """These folders of the commit; a missing one is empty."""
    commit, known = _known.pop(git, ("", {}))
    known = known if base and commit == base else {}
    folders: Folders = {folder: known.get(folder, {}) for folder in wanted}
    for batch in _batches(sorted(wanted - known.keys())) if base else ():
        asked = set(batch)
        named = (os.fsdecode(folder) + "/" if folder else "." for folder in batch)
        for line in git.run("ls-tree", "-z", "--full-tree", base, "--", *named).split(b"\0"):
            meta, tab, path = line.partition(b"\t")
            folder, _, name = path.rpartition(b"/")
            if tab and folder in asked:
                mode, _, ident = meta.split(b" ")
                folders[folder][name] = (mode, ident)
    return folders


def _changes(
    git: Repository, folders: Folders, paths: Sequence[str], contents: Contents
) -> Mapping[bytes, Entry | None]:
    """The working tree's entries at these paths where they differ; None = deleted.

    git adds the files as `git add` does (filters, line endings, modes, links), to an index that holds only these paths
    and the attributes that apply to them.
    """
    index = private_index.index_path(git, "paths")
    private_index.discard(index)
    before: dict[bytes, Entry] = {}
    links: dict[str, bool] = {"": False}
    for batch in _batches([os.fsencode(path) for path in paths]):
        present = [path for path in batch if not private_index.is_gone(git.head.top, os.fsdecode(path), links)]
        stored = _stored(folders, batch)
        before |= stored
        known = {path: entry for path, entry in stored.items() if path in present or path not in batch}
        private_index.update_paths(git, index, present, known)
    after = _listed(git.run("ls-files", "-s", "-z", index=index))
    after |= {os.fsencode(path): (mode.encode(), ident.encode()) for path, (mode, ident) in contents.items()}
    private_index.discard(index)
    return {path: after.get(path) for path in before | after if before.get(path) != after.get(path)}


def _stored(folders: Folders, paths: Sequence[bytes]) -> dict[bytes, Entry]:
    """The commit's files at these paths, with the attributes of the folders above them."""
    above = {folder for path in paths for folder in _folders_above(path)}
    wanted = (*paths, *(folder + b"/" + _ATTRIBUTES if folder else _ATTRIBUTES for folder in sorted(above)))
    found = {path: folders[_split(path)[0]].get(_split(path)[1]) for path in wanted}
    return {path: entry for path, entry in found.items() if entry is not None and entry[0] != _FOLDER}


def _apply(folders: Folders, changes: Mapping[bytes, Entry | None]) -> None:
    for path, entry in changes.items():
        if entry is None:
            folders[_split(path)[0]].pop(_split(path)[1], None)
    for path, entry in changes.items():
        if entry is not None:
            folders[_split(path)[0]][_split(path)[1]] = entry
            for folder in folders:
                if (folder + b"/").startswith(path + b"/"):
                    folders[folder].clear()  # a file replaces a folder


def _write_folders(mktree: Any, folders: Folders) -> str:
    """Write the folders, deepest first, each with the ids of its subfolders; empty ones are left out."""
    ident = b""
    for folder in sorted(folders, key=lambda path: len(_folders_above(path)) if path else 0, reverse=True):
        entries = folders[folder]
        above, name = _split(folder)
        if entries or not folder:
            lines = (b"%s %s %s\t%s\0" % (mode, _KINDS.get(mode, b"blob"), blob, entry)
                     for entry, (mode, blob) in entries.items())  # fmt: skip
            mktree.stdin.write(b"".join(lines) + b"\0")
            mktree.stdin.flush()
            ident = mktree.stdout.readline().strip()
            if not ident:
                raise EOFError
        if folder and entries:
            folders[above][name] = (_FOLDER, ident)
        elif folder and folders[above].get(name, (b"",))[0] == _FOLDER:
            del folders[above][name]
    return ident.decode()


def _split(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _batches(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The paths in parts that fit on a command line."""
    batch: list[bytes] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += len(path)
        if len(batch) == _BATCH_PATHS or size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _listed(listing: bytes) -> dict[bytes, Entry]:
    """The answer of `git ls-files -s -z`."""
    found = {}
    for line in listing.split(b"\0"):
        meta, tab, path = line.partition(b"\t")
        if tab:
            mode, ident, _ = meta.split(b" ")
            found[path] = (mode, ident)
    return found
