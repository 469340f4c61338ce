"""Up-to-date stamp: answers "nothing to do" from file metadata, importing almost nothing.

A stamp lists every file that a finished run depends on, with size, times and inode. If none has changed, the run is up to
date. It is written when a run completes, and removed when doit forgets a task.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

from doflow.util import atomic_files, file_signature, state_folder
from doflow.util.errors import WorldError

FORMAT = 5
_QUIET_NS = 25_000_000  # longer than any file system clock tick, so that a later write has a later time

Entry = tuple[str, int, int, int, int]


def find_project_root(start: str = "") -> str:
    """The root of the project: the nearest folder upwards with doflow.yaml, dodo.py or .doflow, else the folder itself."""
    here = os.path.realpath(start or os.getcwd())
    folder = here
    while True:
        if any(os.path.exists(os.path.join(folder, name)) for name in state_folder.PROJECT_MARKS):
            return folder
        if os.path.exists(os.path.join(folder, ".git")) or os.path.dirname(folder) == folder:
            return here
        folder = os.path.dirname(folder)


def stamp_path(root: str, flow: str) -> str:
    return os.path.join(root, state_folder.STAMPS, flow)


def valid_stamp(root: str, flow: str, goal: str | None, run: str, environ: dict[str, str]) -> dict[str, object] | None:
    """The stamp of this flow if it is valid for a command with this goal and run; else None."""
    try:
        with open(stamp_path(root, flow), encoding="utf-8") as stream:
            stamp = json.load(stream)
    except (OSError, ValueError):
        return None
    if not isinstance(stamp, dict) or stamp.get("format") != FORMAT:
        return None
    if stamp["root"] != root or stamp["self"] != installation() or stamp["environ"] != settings_overrides(environ):
        return None  # the project was copied or moved, or another doflow is installed
    if (goal is not None and goal != stamp["goal"]) or (run and run != stamp["run"]):
        return None
    if goal is None and not run and not stamp["usual"]:
        return None
    if not all(file_signature.is_unchanged(name, recorded, follow=False) for name, *recorded in stamp["files"]):
        return None
    return None if any(os.path.lexists(name) for name in stamp["absent"]) else stamp


def file_signatures(names: set[str]) -> tuple[list[Entry], list[str]]:
    """The metadata of the files, and those that do not exist."""
    files: list[Entry] = []
    absent: list[str] = []
    for name in sorted(names):
        found = file_signature.from_path(name, follow=False)
        if found is None:
            absent.append(name)
        else:
            files.append((name, *found))
    return files, absent


def write_stamp(
    root: str, flow: str, values: dict[str, object], seen: tuple[list[Entry], list[str]], environ: dict[str, str]
) -> None:
    """Stamp a finished run. Waits until the newest file is older than a clock tick, so that no later change is missed."""
    files, absent = seen
    newest = max((max(entry[2], entry[3]) for entry in files), default=0)
    time.sleep(max(0, min(_QUIET_NS, newest + _QUIET_NS - time.time_ns())) / 1e9)
    stamp = {
        **values, "format": FORMAT, "root": root, "self": installation(), "environ": settings_overrides(environ),
        "files": files, "absent": absent,
    }  # fmt: skip
    target = stamp_path(root, flow)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        atomic_files.write_file(target, json.dumps(stamp).encode(), sync=False)
    except (OSError, WorldError):
        pass  # without a stamp the next answer is as right, and a little slower


def remove_stamp(root: str, flow: str) -> None:
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(stamp_path(root, flow))


def settings_overrides(environ: dict[str, str]) -> list[list[str]]:
    return sorted([name, value] for name, value in environ.items() if name.startswith("DOFLOW_SET_"))


def installation() -> list[str | int]:
    """Which doflow and which Python: another version invalidates the stamp."""
    here = os.path.dirname(os.path.dirname(__file__))
    return [here, _newest(here), sys.version]


def _newest(folder: str) -> int:
    below = (entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name != "__pycache__")
    return max(os.stat(folder).st_mtime_ns, *map(_newest, below), 0)
