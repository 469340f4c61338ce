"""Log files of programs: creating them, the liveness file next to them, trimming those that grew too large.

A log that is too large loses its middle: the beginning, a line that says what was omitted, and the end remain. It is
trimmed in place, so it works on a full disk.
"""

from __future__ import annotations

import os
from contextlib import suppress

from doflow.util.errors import WorldError

MOST = 64_000_000  # bytes
_BEGINNING = 4_000_000
_PIECE = 1_000_000


def trim_middle(path: str, most: int = MOST) -> int:
    """Trim a log that is no longer written; returns the number of bytes omitted."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size <= most:
            return 0
        keep = _line(descriptor, min(_BEGINNING, most // 2))
        begin = _line(descriptor, size - (most - keep))
        words = f"doflow: {begin - keep:,} of {size:,} bytes omitted: a log keeps {most:,}\n".encode()
        end = _move(descriptor, begin, keep + len(words), size)
        os.pwrite(descriptor, words, keep)
        file.truncate(end)
        return begin - keep


def _line(descriptor: int, place: int) -> int:
    """The start of the next line, if it is near; else the position itself."""
    part = os.pread(descriptor, _PIECE, place)
    found = part.find(b"\n")
    return place + found + 1 if found >= 0 else place


def _move(descriptor: int, source: int, target: int, size: int) -> int:
    """Move the end of a file towards its start, in pieces; returns the new size."""
    while source < size:
        part = os.pread(descriptor, _PIECE, source)
        if not part:
            break
        os.pwrite(descriptor, part, target)
        source += len(part)
        target += len(part)
    return target


def make_folders(*paths: str) -> None:
    for path in dict.fromkeys(paths):
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            continue
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            hint = "check the free space and the owner of the folder above it"
            raise WorldError(f"cannot create the folder {folder}: {error.strerror}", hint=hint) from error


def touch_file(path: str) -> None:
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        os.utime(path)


def sibling_path(path: str, ending: str) -> str:
    """A sibling path whose name isn't taken for a log."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{ending}")


def remove_if_exists(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def append_note(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return  # the result says it too
    os.write(descriptor, f"doflow: {text}\n".encode("utf-8", "replace"))
    os.close(descriptor)
