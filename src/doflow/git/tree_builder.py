"""Builds the tree of a commit from the changed paths: the work depends on them, not on the size of the repository."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from doflow.git import private_index
from doflow.git.repository import Repository

#: (mode, object id)
Entry = tuple[bytes, bytes]
#: path from the top of the working tree -> mode, id of a stored object
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
    """The id of the tree of `base` ('' = no commit yet) with the working tree's content of `paths`; '' if it is the same.

    `contents`: what some of the paths get instead, as mode and id of a stored object."""
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
