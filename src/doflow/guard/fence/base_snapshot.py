"""The tree as it was before a job whose result is there already: its own files are told from all others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from doflow.git import history
from doflow.git.runner import Git
from doflow.guard.snapshot.entries import Item, Snapshot
from doflow.util.errors import WorldError

_EXECUTABLE, _LINK, _MODULE = "100755", "120000", "160000"


def before(git: Git, now: Snapshot, paths: Iterable[str], work: str, in_git: Mapping[str, tuple[str, str]]) -> Snapshot:
    """`now` with these paths as `work` holds them: the commit of what was there when the job began. What a person has
    committed since (`in_git`: path -> mode, blob id) is no longer the job's."""
    held = _held(git, work, in_git)
    items = dict(now.items)
    gone: set[str] = set()
    for path in paths:
        item = items.pop(path, None)
        mode, blob = held.get(path, ("", ""))
        if item.blob if item is not None else path not in in_git:
            mode, blob = in_git.get(path, ("", ""))
        if mode and mode != _MODULE:
            items[path] = item if item is not None and item.blob == blob else _item(git, mode, blob, item)
        else:
            gone.update(_above(path))
    return Snapshot(now.taken, items, now.folders - (gone - {above for path in items for above in _above(path)}))


def put(base: Snapshot, held: Mapping[str, Item | None], folders: frozenset[str]) -> Snapshot:
    """A snapshot with other items at some paths (None = not there)."""
    items = {path: item for path, item in {**base.items, **held}.items() if item is not None}
    return Snapshot(base.taken, items, base.folders | folders)


def folders(paths: Iterable[str]) -> frozenset[str]:
    """All folders above these paths."""
    return frozenset(above for path in paths for above in _above(path))


def _held(git: Git, work: str, in_git: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """What a commit holds; what HEAD does, where that one is not to be had any more."""
    try:
        return history.blobs(git, work) if work else in_git
    except WorldError:
        return in_git


def _item(git: Git, mode: str, blob: str, now: Item | None) -> Item:
    data = history.blob(git, blob)
    if mode == _LINK:
        return Item("link", 0, os.fsdecode(data), "", (0, 0, 0, 0))
    rights = now.mode if now is not None and now.kind == "file" else 0o644
    rights = rights | 0o111 if mode == _EXECUTABLE else rights & ~0o111
    return Item("file", rights, hashlib.sha256(data).hexdigest(), blob, (0, 0, 0, 0))


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
