"""`doflow logs`: print the output of agents and commands, escaped for the terminal; --follow prints it live."""

from __future__ import annotations

import codecs
import difflib
import json
import os
import stat
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from doflow.cli.context import CommandContext
from doflow.cli.output import report, say, say_json, table, warn
from doflow.runs import event_log, mutex
from doflow.runs.catalogue import Run
from doflow.util import state_folder, stdio, timestamps
from doflow.util.errors import UsageError, WorldError
from doflow.util.text import clean

ABOUT = "Print the output of agents and commands; without STEP, list the logs. Control characters are escaped."
EXAMPLES = """\
  doflow logs                     the logs of the run of this branch
  doflow logs plan                the last attempt of a step
  doflow logs implement:2 --attempt 1
  doflow logs plan --follow       as it is written
  doflow logs plan --err          its standard error
  doflow logs test --role repair  output of the agent that repaired a command
  doflow logs plan --json         one document with the text in it; with --follow one object per line"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", nargs="?", default="", help="a step, or a phase: implement:2")
    parser.add_argument("--run", default="", help="run name or number")
    parser.add_argument("--attempt", type=int, default=0, help="which attempt (default: the last)")
    parser.add_argument("--role", default="", help="step, repair, … (default: a command's own output, else the last)")
    parser.add_argument("--err", action="store_true", help="standard error instead of standard output")
    parser.add_argument("--follow", action="store_true", help="keep printing until the run ends")
    about = "one JSON document: the list, or of a STEP its log with the text; with --follow one object per line"
    parser.add_argument("--json", action="store_true", help=about)


def logs(args: Namespace) -> int:
    command = CommandContext()
    run = command.run(args.run)
    folder = command.root / state_folder.RUNS / run.name / "logs"
    if not args.step:
        return _list(run, find_logs(folder), args.json)
    step = args.step.removeprefix(f"{run.flow}:")
    name = step.replace("/", ":")
    args.role = args.role or ("step" if _is_command(command, run, step) else "")
    log = _choose(folder, name, args)
    while log is None and args.follow and mutex.is_held(command.root):
        time.sleep(0.1)
        log = _choose(folder, name, args)
    if log is None and not args.err and not args.attempt and _has_run(folder.parent / "events.jsonl", name):
        others = [log.role for log in find_logs(folder) if log.name == name and log.role and log.size and not log.err]
        hint = f"\n  output of its agent: doflow logs {step} --role {others[-1]}" if others else ""
        if args.json:
            say_json({"run": run.name, "step": name, "text": ""})
        else:
            warn(f"{name} printed nothing{hint}")
        return 0
    if log is None:
        raise _missing(run, name, args, find_logs(folder))
    going = (lambda: mutex.is_held(command.root) and not stdio.gone()) if args.follow else (lambda: False)
    chunks = read_chunks(log.path, going)
    if args.json:
        _print_json({"run": run.name, **_row(log)}, chunks, args.follow)
    else:
        _print(log, chunks, folder)
    return 0


def _is_command(command: CommandContext, run: Run, name: str) -> bool:
    """Whether the step is a command; then its own output is shown, not that of the repairing agent."""
    if run.flow not in command.session.project.about:
        return False
    step = command.session.project.flow(run.flow).step(name)
    return step is not None and step.kind == "shell"


def _print(log: Log, chunks: Iterator[str], folder: Path) -> None:
    empty = True
    for text in chunks:
        empty = False
        sys.stdout.write(clean(text))
        sys.stdout.flush()
    if empty:
        warn(_silent(log, find_logs(folder)))


def _print_json(about: dict[str, object], chunks: Iterator[str], follow: bool) -> None:
    """Print the unmodified text as JSON."""
    if not follow:
        say_json({**about, "text": "".join(chunks)})
        return
    for text in chunks:
        sys.stdout.write(json.dumps({**about, "text": text}) + "\n")
        sys.stdout.flush()


def _has_run(events: Path, name: str) -> bool:
    """Whether the step ran: a command without output leaves no log, only events."""
    kinds = ("step_starting", "step_complete")
    return any(entry["event"] in kinds and entry.get("step") == name for entry in event_log.read_events(events))


def _silent(log: Log, found: list[Log]) -> str:
    """A message for an empty log (printed on stderr), and where there is other output."""
    where = "printed nothing on standard error" if log.err else "printed nothing on standard output"
    message = f"{log.name} {where} (attempt {log.attempt}{f', {log.role}' if log.role else ''})"
    same = (log.name, log.attempt, log.role, not log.err)
    if not any(other.size and (other.name, other.attempt, other.role, other.err) == same for other in found):
        return message
    again = f"doflow logs {log.name} --attempt {log.attempt}"
    return f"{message}\n  its standard {f'output: {again}' if log.err else f'error: {again} --err'}"


def _choose(folder: Path, name: str, args: Namespace) -> Log | None:
    """The newest log of the step (or any of its phases) for the given attempt and role."""
    found = [log for log in find_logs(folder) if log.name == name or log.name.startswith(f"{name}:")]
    found = [log for log in found if log.err == args.err and args.attempt in (0, log.attempt)]
    found = [log for log in found if args.role in ("", log.role or "step")]
    return found[-1] if found else None


def _missing(run: Run, name: str, args: Namespace, found: list[Log]) -> UsageError:
    attempt = f", attempt {args.attempt}" if args.attempt else ""
    message = f"run {run.name} has no {'error log' if args.err else 'log'} of {name}{attempt}"
    attempts = sorted({log.attempt for log in found if log.name == name and log.err == args.err})
    if args.attempt and attempts:
        return UsageError(f"{message} (its attempts: {', '.join(map(str, attempts))})", f"doflow logs {name}")
    names = sorted({log.name for log in found})
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean: doflow logs {near[0]}" if near and near[0] != name else "doflow logs   lists them"
    return UsageError(f"{message} (there are: {', '.join(names) or 'none'})", hint)


def _list(run: Run, found: list[Log], as_json: bool) -> int:
    shown = [log for log in found if log.size or not log.err]
    if as_json or not shown:
        data = {"run": run.name, "logs": [_row(log) for log in found]}
        return report(as_json, data, f"{run.name} has no logs on this machine")
    table([("STEP", "ATTEMPT", "", "BYTES", "CHANGED", "FILE"), *(_cells(log) for log in shown)])
    say(f"\ndoflow logs {shown[-1].name} prints one")
    return 0


def _row(log: Log) -> dict[str, object]:
    when = timestamps.format_seconds(log.changed)
    about = {"step": log.name, "attempt": log.attempt, "role": log.role or "step", "err": log.err}
    return {**about, "bytes": log.size, "changed": when, "path": str(log.path)}


def _cells(log: Log) -> tuple[str, ...]:
    kind = " ".join(word for word in (log.role, "stderr" if log.err else "") if word)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(log.changed))
    return (log.name, str(log.attempt), kind, f"{log.size:,}", when, log.path.name)


_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Log:
    """One file: `implement.2.1.repair.err.log` is phase 2 of implement, attempt 1, the repair's stderr."""

    path: Path
    name: str
    attempt: int
    role: str
    err: bool
    size: int
    changed: float


def find_logs(folder: Path) -> list[Log]:
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


def read_chunks(path: Path, going: Callable[[], bool]) -> Iterator[str]:
    """The file in chunks; stops at its end once `going` returns False."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    kept = ""
    with os.fdopen(_open(path), "rb") as stream:
        while True:
            alive = going()
            data = stream.read(_CHUNK)
            text = kept + decoder.decode(data, final=not data and not alive)
            kept = "\r" if text.endswith("\r") and (data or alive) else ""  # may be the first half of a line ending
            if text := text[: len(text) - len(kept)]:
                yield text
            if not data and not alive:
                return
            if not data:
                time.sleep(0.1)


def _open(path: Path) -> int:
    """Open a log without following links or pipes that an agent may have put in its place."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise WorldError(f"{path} is not a regular file", f"ls -l '{path}'")
    return fd
