"""What a glob opens: its folder, as far as it is named, and which folders lie in its reach. Folders that are missing are made
for as long as somebody works in them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress

_guard = threading.Lock()
_users: Counter[str] = Counter()


def head(glob: str) -> tuple[str, ...]:
    """The folders that a glob names before its first wildcard, without the file at its end."""
    parts = _parts(glob)
    said = parts if glob.endswith("/") else parts[:-1]
    plain = [_wild(part) for part in said]
    return said[: plain.index(True)] if True in plain else said


def reaches(glob: str, folder: str) -> bool:
    """Whether something below `folder` (from the root) can be meant."""
    parts = _parts(glob.casefold())
    if not parts:
        return True
    there = folder.casefold().split("/")
    shallow = "**" not in glob and not glob.endswith("/") and _wild(parts[-1])
    if shallow and len(there) >= len(parts):
        return False
    for said, name in zip(parts, there, strict=False):
        if _wild(said):
            return True
        if said != name:
            return False
    return True


def make(root: str, globs: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that were made now, or by another who is still there; outermost first."""
    found: list[str] = []
    with _guard:
        for glob in globs:
            place = root
            for part in head(glob):
                place = os.path.join(place, part)
                if part.casefold() in (".git", "..") or os.path.islink(place):
                    break
                if not os.path.lexists(place):
                    os.mkdir(place)
                elif place not in _users:
                    if os.path.isdir(place):
                        continue
                    break
                if place not in found:
                    found.append(place)
        _users.update(found)
    return tuple(found)


def leave(folders: tuple[str, ...]) -> None:
    """Takes those away again that stayed empty, once nobody works in them."""
    with _guard:
        for folder in reversed(folders):
            _users[folder] -= 1
            if _users[folder] <= 0:
                del _users[folder]
                with suppress(OSError):
                    os.rmdir(folder)


def _parts(glob: str) -> tuple[str, ...]:
    """None for a glob without a slash: it means files at any depth."""
    text = glob.removeprefix("./")
    return tuple(part for part in text.split("/") if part) if "/" in text.rstrip("/") else ()


def _wild(part: str) -> bool:
    return "*" in part or "?" in part
