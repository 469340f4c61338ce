"""`doflow clean`: removes state that can be made anew or that nobody needs any more. Never a record of what is done."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from doflow.cli import output as commands
from doflow.cli.context import Desk
from doflow.config.project import STATE
from doflow.guard.quarantine import Quarantine
from doflow.runs import leftovers as litter
from doflow.runs.state import event_log as ledger, lockfile as lock
from doflow.util.errors import DoflowError, UsageError
from doflow.util.records import regex

ABOUT = "remove state that is not needed any more: old logs, stored inputs of no run, caches, leftovers"
EXAMPLES = """\
  doflow clean --dry-run                  what it would remove
  doflow clean                            logs older than 30 days, and all that can be made anew
  doflow clean --logs --older-than 7d     only logs
  doflow clean --quarantine --older-than 90d
"""
_SPAN = regex(r"(\d+)([smhdw]?)")
_ENDS = frozenset({"step_complete", "phase_complete", "reset", "adopted"})
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "": 86400}

Found = tuple[str, Path]  # what it is, where


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--logs", action="store_true", help="only old logs")
    parser.add_argument("--store", action="store_true", help="only stored contents that no run refers to")
    parser.add_argument("--quarantine", action="store_true", help="only the quarantine; needs --older-than")
    about = "how old logs must be (s, m, h, d, w; default: 30d)"
    parser.add_argument("--older-than", default="", metavar="30d", help=about)
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def clean(args: argparse.Namespace) -> int:
    if args.quarantine and not args.older_than:
        raise UsageError("the quarantine is only cleaned of old things", "doflow clean --quarantine --older-than 90d")
    before = time.time() - _seconds(args.older_than or "30d")
    desk = Desk()
    with desk.changing():
        found = list(_found(desk, args, before))
        freed = {str(path.relative_to(desk.root)): (what, litter.size(path)) for what, path in found}
        for _, path in () if args.dry_run else found:
            _remove(path)
    if args.json:
        rows = [{"path": path, "what": what, "bytes": size} for path, (what, size) in freed.items()]
        total = sum(size for _, size in freed.values())
        commands.say_json({"would" if args.dry_run else "removed": rows, "bytes": total})
    else:
        _say(freed, args.dry_run)
    return 0


def _found(desk: Desk, args: argparse.Namespace, before: float) -> Iterator[Found]:
    every = not (args.logs or args.store or args.quarantine)
    if every or args.logs:
        yield from (("an old log", path) for path in _logs(desk.root, before))
    if every or args.store:
        yield from (("contents that no run refers to", path) for path in _stored(desk))
    if args.quarantine:
        yield from (("in quarantine", path) for path in _kept(desk.root, before))
    if every:
        layout = desk.session.project.layout
        yield from (("a leftover of a killed process", path) for path in litter.temporary(desk.root, layout))
        yield from (("a memory that could not be read", path) for path in litter.spoilt(desk.root))
        known = {run.name for run in desk.runs()}
        yield from (("the state of no run", path) for path in litter.orphans(desk.root, known))
        yield from (("made anew when needed", path) for path in _caches(desk.root))


def _logs(root: Path, before: float) -> Iterator[Path]:
    """Old logs, but for those whose step is not finished: what an agent said last may still be read from them."""
    for run in sorted((root / STATE / "runs").glob("*")):
        needed: dict[object, str] = {}
        for entry in ledger.read(run / "events.jsonl"):
            name = (entry.get("step"), entry.get("phase"))
            if entry["event"] == "returned":
                needed[name] = entry.get("log", "")
            elif entry["event"] in _ENDS:
                needed.pop(name, None)
        for path in sorted((run / "logs").glob("*")):
            if path.is_file() and path.lstat().st_mtime < before and str(path) not in needed.values():
                yield path


def _stored(desk: Desk) -> Iterator[Path]:
    """The store keeps inputs by digest, and while a step runs the bytes that it may have to put back."""
    root = desk.root
    if any((root / STATE / "runs").glob("*/window")):
        return
    needed = _referred(desk)
    for place, _, names in os.walk(root / STATE / "store"):
        for name in sorted(names):
            digest = name if len(name) == 64 else os.path.basename(place) + name
            if digest not in needed:
                yield Path(place, name)


def _referred(desk: Desk) -> set[str]:
    """Every digest that a lock here, or the ledger of a run on another branch, speaks of."""
    found: set[str] = set()
    for run in desk.runs():
        try:
            held = lock.read(desk.root / run.dir / lock.NAME)
        except DoflowError:
            held = None
        records = list(held.steps.values()) if held else []
        if held is None:
            told = ledger.read(desk.root / STATE / "runs" / run.name / "events.jsonl")
            records = [lock.record(entry["record"]) for entry in told if isinstance(entry.get("record"), dict)]
        for record in records:
            found.update(record.reads.values())
            found.update(record.made.values())
        found.update(artifact.digest for artifact in held.artifacts.values()) if held else None
    return found


def _kept(root: Path, before: float) -> Iterator[Path]:
    limit = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before))
    store = Quarantine(root / STATE / "quarantine")
    for kept in store.entries():
        if kept.at < limit:
            yield Path(store.folder, kept.id)


def _caches(root: Path) -> Iterator[Path]:
    stamps = root / STATE / "stamps"
    names = sorted(stamps.iterdir()) if stamps.is_dir() else []
    yield from (path for path in names if not re.fullmatch(r".+\.\d+", path.name))
    if (root / STATE / "flows.cache").exists():
        yield root / STATE / "flows.cache"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _seconds(said: str) -> float:
    found = _SPAN.fullmatch(said)
    if not found:
        raise UsageError(f"--older-than {said} is not a span of time", "write 30d, 12h or 2w")
    return float(int(found[1]) * _UNITS[found[2]])


def _say(freed: dict[str, tuple[str, int]], dry: bool) -> None:
    for path, (what, size) in freed.items() if dry else ():
        commands.say(f"{path}   ({what}, {size} bytes)")
    total = sum(size for _, size in freed.values())
    shown = f"{total / 1e6:.1f} MB" if total >= 1e6 else f"{total / 1e3:.1f} kB"
    if not freed:
        commands.say("nothing to clean: everything is needed")
    elif dry:
        commands.say(f"{len(freed)} things, {shown}; the same command without --dry-run removes them")
    else:
        commands.say(f"{len(freed)} things removed, {shown} freed")
