"""What a killed process leaves lying: temporary files of ours, state folders of no run. Found, never touched."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from pathlib import Path

from doflow.config.project import STATE
from doflow.runs.state import event_log as ledger
from doflow.util.records import regex

_TEMPORARY = regex(r"\.doflow-[0-9a-f]{16}\.tmp")
_BY_PID = regex(r".+\.\d+")
_BAD = regex(r"state\.db(-wal|-shm)?\.bad")


def temporary(root: Path, layout: str) -> tuple[Path, ...]:
    """Half-written files of a process that is gone (nobody may be at work now)."""
    tops = dict.fromkeys((STATE, layout, "specs", "plan"))
    every = (*(path for top in tops for path in _walk(root / top)), *_walk(root, deep=False))
    found = [path for path in every if _TEMPORARY.fullmatch(path.name)]
    found += [path for path in _walk(root / STATE / "stamps") if _BY_PID.fullmatch(path.name)]
    found += [path for path in _walk(root / STATE, deep=False) if re.fullmatch(r"flows\.cache\.\d+", path.name)]
    return tuple(sorted(found))


def spoilt(root: Path) -> tuple[Path, ...]:
    """A memory of doit's that could not be read and was put aside; lock and ledger know what is done."""
    return tuple(sorted(path for path in _walk(root / STATE, deep=False) if _BAD.fullmatch(path.name)))


def orphans(root: Path, runs: Container[str]) -> tuple[Path, ...]:
    """State folders of none of these runs, that tell of no run either: their ledger is missing or holds nothing."""
    folder = root / STATE / "runs"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    lost = (folder / name for name in names if name not in runs)
    return tuple(path for path in lost if path.is_dir() and not _of_a_run(path))


def size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        return sum(found.lstat().st_size for found in _walk(path))
    return path.lstat().st_size


def _of_a_run(folder: Path) -> bool:
    return next(ledger.read(folder / "events.jsonl"), None) is not None


def _walk(folder: Path, deep: bool = True) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        yield from (Path(place, name) for name in names)
        if not deep:
            below.clear()
