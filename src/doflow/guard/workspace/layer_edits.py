"""Changing layers: writing into them, reverting paths, moving entries from one to another, removing them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress

from doflow.guard.workspace import layers
from doflow.guard.workspace.layers import OPAQUE


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
            os.setxattr(whole, OPAQUE, b"y")
        elif not os.path.isdir(whole):
            os.mkdir(whole)
        with suppress(OSError):
            shutil.copymode(model, whole)


def _merge(source: str, target: str) -> None:
    folder = os.path.isdir(source) and not os.path.islink(source)
    there = os.path.isdir(target) and not os.path.islink(target)
    if folder and there and not layers.is_opaque(source):
        for name in os.listdir(source):
            _merge(os.path.join(source, name), os.path.join(target, name))
        return
    hides = not folder or layers.is_opaque(source)
    if there:
        remove_tree(target)
    elif os.path.lexists(target):
        covered = layers.is_whiteout(target)
        os.unlink(target)
        hides = hides or not covered
        if folder and not hides:  # it was deleted, and is there again
            os.setxattr(source, OPAQUE, b"y")
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
    before, now = layers.View(root, below).locate(path), layers.View(root, (*below, *stack)).locate(path)
    if before == now or not before or not stack:
        return
    target = os.path.join(stack[-1], path)
    _make_folders(stack[-1], os.path.dirname(path), stack[-1])
    if os.path.isdir(target) and not os.path.islink(target):
        remove_tree(target)
    shutil.copy2(before, target, follow_symlinks=False)


def make_reachable(layer: str) -> None:
    """Modes of folders are not taken over: give ourselves access to all that a program wrote."""
    folders = [layer]
    while folders:
        place = folders.pop()
        os.chmod(place, stat.S_IMODE(os.lstat(place).st_mode) | 0o700)
        with os.scandir(place) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and not entry.stat(follow_symlinks=False).st_mode & 0o400:
                    os.chmod(entry.path, stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) | 0o400)
