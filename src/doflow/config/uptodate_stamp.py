"""Nothing to do? One stamp over everything a finished run depends on answers it, next to no imports.

A stamp lists files with size, times and inode. All of them as they were = the run is finished still. It is written
when a run is complete, and removed when anybody tells doit to forget a task.
"""

from __future__ import annotations

import marshal
import os
import sys
import time

FORMAT = 4
_QUIET_NS = 25_000_000  # coarser than any file system clock tick: a later write cannot look like an earlier one

Entry = tuple[str, int, int, int, int]


def find(start: str = "") -> str:
    """The project that a folder belongs to: the nearest one above with dodo.py or doflow.yaml, else the folder."""
    here = os.path.realpath(start or os.getcwd())
    folder = here
    while True:
        if any(os.path.exists(os.path.join(folder, name)) for name in ("doflow.yaml", "dodo.py", ".doflow")):
            return folder
        if os.path.exists(os.path.join(folder, ".git")) or os.path.dirname(folder) == folder:
            return here
        folder = os.path.dirname(folder)


def path(root: str, flow: str) -> str:
    return os.path.join(root, ".doflow", "stamps", flow)


def holds(root: str, flow: str, goal: str | None, run: str, environ: dict[str, str]) -> dict[str, object] | None:
    """The stamp of this flow if it still holds for a command with this goal and run; else None."""
    try:
        with open(path(root, flow), "rb") as stream:
            stamp = marshal.load(stream)
    except (OSError, ValueError, EOFError, TypeError):
        return None
    if not isinstance(stamp, dict) or stamp.get("format") != FORMAT:
        return None
    if stamp["root"] != root or stamp["self"] != myself() or stamp["environ"] != overrides(environ):
        return None  # a project that was copied or moved looks for itself
    if (goal is not None and goal != stamp["goal"]) or (run and run != stamp["run"]):
        return None
    if goal is None and not run and not stamp["usual"]:
        return None
    lstat = os.lstat
    try:
        for name, size, mtime, ctime, inode in stamp["files"]:
            found = lstat(name)
            if (
                found.st_mtime_ns != mtime
                or found.st_ctime_ns != ctime
                or found.st_ino != inode
                or found.st_size != size
            ):
                return None
        for name in stamp["absent"]:
            if os.path.lexists(name):
                return None
    except OSError:
        return None
    return stamp


def look(names: set[str]) -> tuple[list[Entry], list[str]]:
    """The files as they are now, and those that are not there."""
    files: list[Entry] = []
    absent: list[str] = []
    for name in sorted(names):
        try:
            found = os.lstat(name)
        except OSError:
            absent.append(name)
            continue
        files.append((name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
    return files, absent


def write(
    root: str, flow: str, values: dict[str, object], seen: tuple[list[Entry], list[str]], environ: dict[str, str]
) -> None:
    """Stamp a finished run. Waits until no listed file is so young that a change could hide in the clock's tick."""
    files, absent = seen
    newest = max((max(entry[2], entry[3]) for entry in files), default=0)
    time.sleep(max(0, min(_QUIET_NS, newest + _QUIET_NS - time.time_ns())) / 1e9)
    stamp = {
        **values,
        "format": FORMAT,
        "root": root,
        "self": myself(),
        "environ": overrides(environ),
        "files": files,
        "absent": absent,
    }
    target = path(root, flow)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(f"{target}.{os.getpid()}", "wb") as stream:
            marshal.dump(stamp, stream)
        os.replace(f"{target}.{os.getpid()}", target)
    except OSError:
        pass  # without a stamp the next answer is as right, and a little slower


def remove(root: str, flow: str) -> None:
    try:
        os.unlink(path(root, flow))
    except (FileNotFoundError, IsADirectoryError):
        pass


def overrides(environ: dict[str, str]) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in environ.items() if name.startswith("DOFLOW_SET_"))


def myself() -> tuple[str, int, str]:
    """Which doflow and which Python: another one may see things differently."""
    here = os.path.dirname(os.path.dirname(__file__))
    return (here, _newest(here), sys.version)


def _newest(folder: str) -> int:
    below = (entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name != "__pycache__")
    return max(os.stat(folder).st_mtime_ns, *map(_newest, below), 0)
