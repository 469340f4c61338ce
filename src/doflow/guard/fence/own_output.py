"""Project files that receive doflow's own output: `doit FLOW > run.log`, `… | tee run.log`, `script`.

They grow while an agent runs without being changed by it. Looked up once, before any agent has run.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from functools import cache

_PROC = "/proc"
_WRITING = os.O_WRONLY | os.O_RDWR
_F_GETPATH = 50  # macOS


@cache
def within(root: str) -> frozenset[str]:
    """Their paths below `root`."""
    top = os.path.join(os.path.realpath(root), "")
    found = {path for path in _written((1, 2)) if path.startswith(top)}
    return frozenset(path.removeprefix(top) for path in found if _is_file(path))


def _written(ours: tuple[int, ...]) -> Iterator[str]:
    if not sys.platform.startswith("linux"):
        yield from _by_name(ours)
        return
    here = os.getpid()
    pipes = {link for fd in ours if (link := _link(here, str(fd))).startswith("pipe:")}
    yield from (_link(here, str(fd)) for fd in ours)
    parents = _parents(here)
    for pid in {*parents, *(_beside(here) if pipes else ())}:
        links = {name: _link(pid, name) for name in _list(f"{_PROC}/{pid}/fd")}
        if pid in parents or not pipes.isdisjoint(links.values()):
            yield from (link for name, link in links.items() if link[:1] == "/" and _writes(pid, name))


def _by_name(ours: tuple[int, ...]) -> Iterator[str]:
    """Without /proc only our own descriptors are known."""
    for fd in ours:
        try:
            yield os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
        except OSError:
            continue


def _parents(pid: int) -> list[int]:
    """Our parent processes: a shell with redirected output, `script`, `nohup`, a job runner."""
    found: list[int] = []
    while pid > 1 and len(found) < 20:
        try:
            with open(f"{_PROC}/{pid}/stat", "rb") as stream:
                pid = int(stream.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        found += [pid] if pid > 1 else []
    return found


def _beside(here: int) -> Iterator[int]:
    """The processes of our session: the reader of our pipe is one of them."""
    session = os.getsid(0)
    for name in _list(_PROC):
        try:
            if name.isdigit() and int(name) != here and os.getsid(int(name)) == session:
                yield int(name)
        except OSError:
            continue  # it has ended


def _writes(pid: int, fd: str) -> bool:
    try:
        with open(f"{_PROC}/{pid}/fdinfo/{fd}") as stream:
            flags = next(line for line in stream if line.startswith("flags:"))
    except (OSError, StopIteration):
        return False
    return bool(int(flags.split()[1], 8) & _WRITING)


def _link(pid: int, fd: str) -> str:
    try:
        return os.readlink(f"{_PROC}/{pid}/fd/{fd}")
    except OSError:
        return ""


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
