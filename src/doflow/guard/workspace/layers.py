"""Reading layers: what the programs of a job have changed, from the folders that an overlay file system wrote for them.

A layer holds whole files, links, an empty character device for everything deleted, and folders; an opaque folder replaces
the one below it. Layers are stacked, a higher one wins.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_OPAQUE = "user.overlay.opaque"
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
    under = View(root, below)
    for layer in layers:
        for path, source in _entries(layer, "", skip):
            if source.endswith("/"):  # an opaque folder: what was there is gone, as far as the layer does not have it
                found |= dict.fromkeys((path, *_files_below(under, found, path, skip)), "")
            elif source:
                found |= dict.fromkeys(_files_below(under, found, path, skip), "") if os.path.islink(source) else {}
                found[path] = source
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


def is_whiteout(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
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


def move_entry(source: str, layer: str, path: str, modes: str) -> None:
    """Move a file or folder of another layer to `path` in this one: it wins over what is there, and deletions stay
    deletions. `modes`: the layer it comes from, whose folders are the model for new ones."""
    target = os.path.join(layer, path)
    _make_folders(layer, os.path.dirname(path), modes)
    _merge(source, target)


def make_folders(layer: str, folder: str) -> None:
    """Create a folder in a layer."""
    _make_folders(layer, folder, layer)


def _make_folders(layer: str, folder: str, modes: str) -> None:
    place = ""
    for part in folder.split("/") if folder else ():
        place = os.path.join(place, part)
        whole, model = os.path.join(layer, place), os.path.join(modes, place)
        if os.path.lexists(whole) and (os.path.islink(whole) or not os.path.isdir(whole)):
            os.unlink(whole)  # a deletion: the folder is back, without what was in it
            os.mkdir(whole)
            os.setxattr(whole, _OPAQUE, b"y")
        elif not os.path.isdir(whole):
            os.mkdir(whole)
        with suppress(OSError):
            shutil.copymode(model, whole)


def _merge(source: str, target: str) -> None:
    folder = os.path.isdir(source) and not os.path.islink(source)
    there = os.path.isdir(target) and not os.path.islink(target)
    if folder and there and not is_opaque(source):
        for name in os.listdir(source):
            _merge(os.path.join(source, name), os.path.join(target, name))
        return
    hides = not folder or is_opaque(source)
    if there:
        remove_tree(target)
    elif os.path.lexists(target):
        covered = is_whiteout(target)
        os.unlink(target)
        hides = hides or not covered
        if folder and not hides:  # it was deleted, and is there again
            os.setxattr(source, _OPAQUE, b"y")
    os.rename(source, target)


def remove_tree(path: str) -> None:
    """Remove a folder of ours with whatever modes programs, or the overlay itself, gave its folders."""
    if not os.path.lexists(path):
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        os.chmod(path, 0o700)
        for place, folders, _ in os.walk(path):
            for name in folders:
                if not os.path.islink(whole := os.path.join(place, name)):
                    os.chmod(whole, 0o700)
        shutil.rmtree(path)


def remove_entry(layer: str, path: str) -> None:
    """Remove what a layer says about a path: the view shows again what is below it."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(layer, path))


def write_file(layer: str, path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file into a layer."""
    _make_folders(layer, os.path.dirname(path), layer)
    target = os.path.join(layer, path)
    if os.path.isdir(target) and not os.path.islink(target):
        remove_tree(target)
    elif os.path.lexists(target):
        mode = stat.S_IMODE(os.lstat(target).st_mode) if os.path.isfile(target) and not os.path.islink(target) else mode
        os.unlink(target)
    with open(target, "xb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(data)


def revert(stack: Sequence[str], below: Sequence[str], root: str, path: str) -> None:
    """Make the stacked layers show at `path` what is below them."""
    for layer in stack:
        place = os.path.join(layer, path)
        if os.path.lexists(place) and not (os.path.isdir(place) and not os.path.islink(place)):
            os.unlink(place)
    before, now = View(root, below).locate(path), View(root, (*below, *stack)).locate(path)
    if before == now or not before or not stack:
        return
    target = os.path.join(stack[-1], path)
    _make_folders(stack[-1], os.path.dirname(path), stack[-1])
    if os.path.isdir(target) and not os.path.islink(target):
        remove_tree(target)
    shutil.copy2(before, target, follow_symlinks=False)


def content_of(change: LayerChange) -> bytes:
    """The new bytes of a changed file; empty if it is deleted or no regular file."""
    if not change.source or os.path.islink(change.source) or not os.path.isfile(change.source):
        return b""
    with open(change.source, "rb") as stream:
        return stream.read()
