"""The logs of a run as files: which there are, and what one says, piece by piece."""

from __future__ import annotations

import codecs
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from doflow.util.errors import WorldError
from doflow.util.records import dataclass

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Log:
    """One file: `implement.2.1.repair.err.log` is phase 2 of implement, attempt 1, the repair's complaints."""

    path: Path
    name: str
    attempt: int
    role: str
    err: bool
    size: int
    changed: float


def found(folder: Path) -> list[Log]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    logs = [log for name in names if (log := _log(folder / name)) is not None]
    return sorted(logs, key=lambda log: log.changed)


def _log(path: Path) -> Log | None:
    parts = path.name.split(".")
    if parts[-1] != "log" or not path.is_file():
        return None
    err = parts[-2] == "err"
    parts = parts[: -2 if err else -1]
    places = [place for place, part in enumerate(parts) if place and part.isdigit()]
    if not places:
        return None
    at = places[-1]
    found = path.stat()
    name = ":".join(parts[:at])
    return Log(path, name, int(parts[at]), ".".join(parts[at + 1 :]), err, found.st_size, found.st_mtime)


def texts(path: Path, going: Callable[[], bool]) -> Iterator[str]:
    """The file piece by piece; ends at its end once nobody is `going` on."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    kept = ""
    with os.fdopen(_open(path), "rb") as stream:
        while True:
            alive = going()
            data = stream.read(_CHUNK)
            text = kept + decoder.decode(data, final=not data and not alive)
            kept = "\r" if text.endswith("\r") and (data or alive) else ""  # it may be the first half of a line's end
            if text := text[: len(text) - len(kept)]:
                yield text
            if not data and not alive:
                return
            if not data:
                time.sleep(0.1)


def _open(path: Path) -> int:
    """Agents write beside these files: a link or a pipe put in their place is not followed."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise WorldError(f"{path} is not a regular file", f"ls -l '{path}'")
    return fd
