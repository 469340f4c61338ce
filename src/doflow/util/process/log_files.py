"""A log that grew beyond all measure is cut in the middle: its beginning, a line that says what is left out, its end.

Nothing of it passes through memory but a piece at a time, and it is done in place: a full disk is no hindrance.
"""

from __future__ import annotations

import os

MOST = 64_000_000  # as `watching.LARGE`
_BEGINNING = 4_000_000
_PIECE = 1_000_000


def trim(path: str, most: int = MOST) -> int:
    """How many bytes were left out; 0 = it is short enough. Nobody may be writing there any more."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size <= most:
            return 0
        keep = _line(descriptor, min(_BEGINNING, most // 2))
        begin = _line(descriptor, size - (most - keep))
        words = f"doflow: {begin - keep:,} of {size:,} bytes are left out here: a log keeps {most:,}\n".encode()
        end = _move(descriptor, begin, keep + len(words), size)
        os.pwrite(descriptor, words, keep)
        file.truncate(end)
        return begin - keep


def _line(descriptor: int, place: int) -> int:
    """Where the next line begins, if that is near; else the place itself."""
    part = os.pread(descriptor, _PIECE, place)
    found = part.find(b"\n")
    return place + found + 1 if found >= 0 else place


def _move(descriptor: int, source: int, target: int, size: int) -> int:
    """The end of a file further to its front, piece by piece; gives where it ends now."""
    while source < size:
        part = os.pread(descriptor, _PIECE, source)
        if not part:
            break
        os.pwrite(descriptor, part, target)
        source += len(part)
        target += len(part)
    return target
