"""`doflow clean`: remove caches and state that is no longer needed. Never records of what is done."""

from __future__ import annotations

import os
import re
import shutil
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from doflow.cli import output
from doflow.cli.context import CommandContext
from doflow.guard.quarantine import Quarantine
from doflow.runs import catalogue, event_log, lockfile
from doflow.util import state_folder, timestamps
from doflow.util.errors import DoflowError, UsageError

ABOUT = "remove unneeded state: old logs, unreferenced stored inputs, caches, leftovers"
EXAMPLES = """\
  doflow clean --dry-run                  what it would remove
  doflow clean                            logs older than 30 days, caches and leftovers
  doflow clean --logs --older-than 7d     only logs
  doflow clean --quarantine --older-than 90d
"""
_ENDS = frozenset({"step_complete", "phase_complete", "reset", "adopted"})
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "": 86400}

Found = tuple[str, Path]  # what it is, where


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--logs", action="store_true", help="only old logs")
    parser.add_argument("--store", action="store_true", help="only unreferenced stored contents")
    parser.add_argument("--quarantine", action="store_true", help="only the quarantine; needs --older-than")
    about = "minimum age (s, m, h, d, w; default for logs: 30d)"
    parser.add_argument("--older-than", default="", metavar="30d", help=about)
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def clean(args: Namespace) -> int:
    if args.quarantine and not args.older_than:
        raise UsageError("--quarantine needs --older-than", "doflow clean --quarantine --older-than 90d")
    age = re.fullmatch(r"(\d+)([smhdw]?)", args.older_than or "30d")
    if age is None:
        raise UsageError(f"--older-than {args.older_than} is not a duration", "write 30d, 12h or 2w")
    before = time.time() - int(age[1]) * _UNITS[age[2]]
    command = CommandContext()
    with command.changing():
        found = list(_found(command, args, before))
        freed = {str(path.relative_to(command.root)): (what, catalogue.disk_size(path)) for what, path in found}
        for _, path in () if args.dry_run else found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    rows = [{"path": path, "what": what, "bytes": size} for path, (what, size) in freed.items()]
    total = sum(size for _, size in freed.values())
    data = {"would" if args.dry_run else "removed": rows, "bytes": total}
    return output.report(args.json, data, _text(freed, total, args.dry_run))


def _found(command: CommandContext, args: Namespace, before: float) -> Iterator[Found]:
    every = not (args.logs or args.store or args.quarantine)
    if every or args.logs:
        yield from (("old log", path) for path in _logs(command.root, before))
    if every or args.store:
        yield from (("unreferenced stored content", path) for path in _stored(command))
    if args.quarantine:
        yield from (("in quarantine", path) for path in _kept(command.root, before))
    if every:
        temporary = catalogue.temporary_files(command.root, command.session.project.layout)
        yield from (("temporary file of a killed process", path) for path in temporary)
        yield from (("unreadable database", path) for path in catalogue.unreadable_databases(command.root))
        known = {run.name for run in command.runs()}
        yield from (("state of a deleted run", path) for path in catalogue.orphaned_state_folders(command.root, known))
        yield from (("cache", path) for path in _caches(command.root))


def _logs(root: Path, before: float) -> Iterator[Path]:
    """Old logs, except of unfinished steps: the agent's answer may still be read from them."""
    for run in sorted((root / state_folder.RUNS).glob("*")):
        needed: dict[object, str] = {}
        for entry in event_log.read_events(run / "events.jsonl"):
            name = (entry.get("step"), entry.get("phase"))
            if entry["event"] == "returned":
                needed[name] = entry.get("log", "")
            elif entry["event"] in _ENDS:
                needed.pop(name, None)
        for path in sorted((run / "logs").glob("*")):
            if path.is_file() and path.lstat().st_mtime < before and str(path) not in needed.values():
                yield path


def _stored(command: CommandContext) -> Iterator[Path]:
    """Unreferenced contents of the store: inputs by digest, and while a step runs the files to restore."""
    root = command.root
    if any((root / state_folder.RUNS).glob("*/window")):
        return
    needed = _referred(command)
    for place, _, names in os.walk(root / state_folder.STORE):
        for name in sorted(names):
            digest = name if len(name) == 64 else os.path.basename(place) + name
            if digest not in needed:
                yield Path(place, name)


def _referred(command: CommandContext) -> set[str]:
    """Every digest referenced by a lock file, or by the event log of a run on another branch."""
    found: set[str] = set()
    for run in command.runs():
        try:
            held = lockfile.read_lock(command.root / run.dir / lockfile.NAME)
        except DoflowError:
            held = None
        if held is not None:
            records = list(held.steps.values())
            found.update(artifact.digest for artifact in held.artifacts.values())
        else:
            events = event_log.read_events(command.root / state_folder.RUNS / run.name / "events.jsonl")
            entries = [entry["record"] for entry in events if isinstance(entry.get("record"), dict)]
            records = [lockfile.build_step_record(entry) for entry in entries]
        for record in records:
            found.update(record.reads.values())
            found.update(record.made.values())
    return found


def _kept(root: Path, before: float) -> Iterator[Path]:
    limit = timestamps.format_seconds(before)
    store = Quarantine(root / state_folder.QUARANTINE)
    for kept in store.entries():
        if kept.at < limit:
            yield Path(store.folder, kept.id)


def _caches(root: Path) -> Iterator[Path]:
    stamps = root / state_folder.STAMPS
    names = sorted(stamps.iterdir()) if stamps.is_dir() else []
    yield from (path for path in names if not re.fullmatch(r".+\.\d+", path.name))
    if (root / state_folder.FLOWS_CACHE).exists():
        yield root / state_folder.FLOWS_CACHE


def _text(freed: dict[str, tuple[str, int]], total: int, dry_run: bool) -> str:
    shown = f"{total / 1e6:.1f} MB" if total >= 1e6 else f"{total / 1e3:.1f} kB"
    if not freed:
        return "nothing to clean"
    if not dry_run:
        return f"removed {len(freed)} entries, {shown} freed"
    lines = [f"{path}   ({what}, {size} bytes)" for path, (what, size) in freed.items()]
    return "\n".join([*lines, f"{len(freed)} entries, {shown}; run without --dry-run to remove them"])
