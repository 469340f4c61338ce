"""Reading layers: what the programs of a job have changed, from the folders that an overlay file system wrote for them.

A layer holds whole files, links, an empty character device for everything deleted, and folders; an opaque folder replaces
the one below it. Layers are stacked, a higher one wins.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

OPAQUE = "user.overlay.opaque"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One changed path. `kind`: added, changed, deleted, or special (a pipe, a socket, a device); `source`: the file or link
    that holds its new content, '' if it was deleted."""

    path: str
    kind: str
    source: str = ""


def stacked_changes(
    layers: Sequence[str], below: Sequence[str], root: str, skip: Callable[[str], bool]
) -> tuple[LayerChange, ...]:
    """What these layers (lowest first) change in the view of `root` with the layers `below` over it, in order of path.

    `skip`: paths that are not looked at. A file that equals the one below is no change."""
    found: dict[str, str] = {}  # path -> content, '' = deleted
    folders: set[str] = set()  # of what was found
    under = View(root, below)
    for layer in layers:
        for path, source in _entries(layer, "", skip):
            if source.endswith("/"):  # an opaque folder: what was there is gone, as far as the layer does not have it
                found |= dict.fromkeys((path, *_files_below(under, found, path, skip)), "")
            elif source:
                if path in folders or under.is_folder(path):
                    found |= dict.fromkeys(_files_below(under, found, path, skip), "")
                found[path] = source
                folders.update(_folders_above(path))
            else:
                found |= dict.fromkeys((path, *_files_below(under, found, path, skip)), "")
    changes = (_change(path, source, under) for path, source in sorted(found.items()))
    return tuple(change for change in changes if change is not None)


def _entries(layer: str, folder: str, skip: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """(path, content): '' = deleted; a path that ends in '/' = an opaque folder, before what is in it."""
    with os.scandir(os.path.join(layer, folder)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{folder}{entry.name}"
        if skip(path):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield path, "" if is_whiteout(entry.path) else entry.path
            continue
        if is_opaque(entry.path):
            yield path, entry.path + "/"
        yield from _entries(layer, f"{path}/", skip)


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def is_whiteout(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _files_below(under: View, found: Mapping[str, str], path: str, skip: Callable[[str], bool]) -> list[str]:
    """The files in a folder of the view as it is so far."""
    prefix = f"{path}/"
    names = [name for name in under.files(path) if not skip(name)]
    return [*names, *(name for name, source in found.items() if source and name.startswith(prefix))]


def _change(path: str, source: str, under: View) -> LayerChange | None:
    before = under.locate(path)
    if not source:
        return LayerChange(path, "deleted") if before else None
    mode = os.lstat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return LayerChange(path, "special", source)
    if before and same_entry(before, source):
        return None
    return LayerChange(path, "changed" if before else "added", source)


def same_entry(one: str, other: str) -> bool:
    """Whether two paths hold the same link, or files with the same bytes and the same right to execute."""
    first, second = os.lstat(one), os.lstat(other)
    if stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
        return False
    if stat.S_ISLNK(first.st_mode):
        return os.readlink(one) == os.readlink(other)
    if not stat.S_ISREG(first.st_mode) or first.st_size != second.st_size:
        return False
    return not (first.st_mode ^ second.st_mode) & 0o100 and same_bytes(one, other)


def same_bytes(one: str, other: str) -> bool:
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        while True:
            part = first.read(_CHUNK)
            if part != second.read(_CHUNK):
                return False
            if not part:
                return True


class View:
    """A folder with layers over it (lowest first), read without mounting them."""

    def __init__(self, root: str, layers: Sequence[str]) -> None:
        self.root = root
        self._layers = tuple(layers)

    def locate(self, path: str) -> str:
        """The file or link that a path shows, '' if there is none or it is a folder."""
        for layer in reversed(self._layers):
            found = _lookup(layer, path)
            if found is not None:
                return found
        whole = os.path.join(self.root, path)
        try:
            mode = os.lstat(whole).st_mode
        except OSError:
            return ""
        return "" if stat.S_ISDIR(mode) or _behind_link(self.root, path) else whole

    def is_folder(self, path: str) -> bool:
        places = (os.path.join(place, path) for place in (self.root, *self._layers))
        return any(os.path.isdir(place) and not os.path.islink(place) for place in places)

    def files(self, folder: str) -> list[str]:
        """All files and links below a folder."""
        names = {
            f"{folder}/{name}" for place in (self.root, *self._layers) for name in _walk(os.path.join(place, folder))
        }
        return sorted(name for name in names if self.locate(name))


def _lookup(layer: str, path: str) -> str | None:
    """What a layer has at a path: '' = deleted, or a folder; None = it says nothing about it."""
    place = layer
    opaque = False
    parts = path.split("/")
    for depth, part in enumerate(parts):
        place = os.path.join(place, part)
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            return "" if opaque else None
        if not stat.S_ISDIR(mode):
            return place if depth == len(parts) - 1 and not is_whiteout(place) else ""
        opaque = opaque or is_opaque(place)
    return ""


def _behind_link(root: str, path: str) -> bool:
    place = root
    for part in path.split("/")[:-1]:
        place = os.path.join(place, part)
        if os.path.islink(place):
            return True
    return False


def _walk(folder: str) -> Iterator[str]:
    if os.path.islink(folder):
        return
    for place, folders, names in os.walk(folder):
        below = os.path.relpath(place, folder)
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*names, *links):
            yield name if below == "." else f"{below}/{name}"


def content_of(change: LayerChange) -> bytes:
    """The new bytes of a changed file; empty if it is deleted or no regular file."""
    if not change.source or os.path.islink(change.source) or not os.path.isfile(change.source):
        return b""
    with open(change.source, "rb") as stream:
        return stream.read()
