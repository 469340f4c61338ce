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
from doflow.cli.output import say, say_json, table, warn
from doflow.config import project
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
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON document: the list, or of a STEP its log with the text; with --follow one object per line",
    )


def logs(args: Namespace) -> int:
    root = project.find()
    desk = CommandContext(root)
    run = desk.run(args.run)
    folder = root / state_folder.RUNS / run.name / "logs"
    if not args.step:
        return _list(run, find_logs(folder), args.json)
    said = args.step.removeprefix(f"{run.flow}:")
    name = said.replace("/", ":")
    args.role = args.role or ("step" if _is_command(desk, run, said) else "")
    log = _choose(folder, name, args)
    while log is None and args.follow and mutex.is_held(root):
        time.sleep(0.1)
        log = _choose(folder, name, args)
    if log is None and not args.err and not args.attempt and _done(folder.parent / "events.jsonl", name):
        return _nothing(run, name, said, args, find_logs(folder))
    if log is None:
        raise _missing(run, name, args, find_logs(folder))
    going = (lambda: mutex.is_held(root) and not stdio.gone()) if args.follow else (lambda: False)
    if args.json:
        return _print_json(run, log, going, args.follow)
    return _print(log, going, folder)


def _is_command(desk: CommandContext, run: Run, said: str) -> bool:
    """Whether the step is a command; then its own output is shown, not that of the repairing agent."""
    if run.flow not in desk.session.project.about:
        return False
    step = desk.session.project.flow(run.flow).step(said)
    return step is not None and step.kind == "shell"


def _nothing(run: Run, name: str, said: str, args: Namespace, there: list[Log]) -> int:
    if args.json:
        say_json({"run": run.name, "step": name, "text": ""})
        return 0
    others = [log.role for log in there if log.name == name and log.role and log.size and not log.err]
    told = f"\n  output of its agent: doflow logs {said} --role {others[-1]}" if others else ""
    warn(f"{name} printed nothing{told}")
    return 0


def _print(log: Log, going: Callable[[], bool], folder: Path) -> int:
    said = False
    for text in read_chunks(log.path, going):
        said = True
        sys.stdout.write(clean(text))
        sys.stdout.flush()
    if not said:
        warn(_silent(log, find_logs(folder)))
    return 0


def _print_json(run: Run, log: Log, going: Callable[[], bool], follow: bool) -> int:
    """Print the unmodified text as JSON."""
    about = {"run": run.name, **_row(log)}
    if not follow:
        say_json({**about, "text": "".join(read_chunks(log.path, going))})
        return 0
    for text in read_chunks(log.path, going):
        sys.stdout.write(json.dumps({**about, "text": text}) + "\n")
        sys.stdout.flush()
    return 0


def _done(events: Path, name: str) -> bool:
    """Whether the step ran: a command without output leaves no log, only events."""
    begun = ("step_starting", "step_complete")
    return any(entry["event"] in begun and entry.get("step") == name for entry in event_log.read_events(events))


def _silent(log: Log, there: list[Log]) -> str:
    """A message for an empty log (printed on stderr), and where there is other output."""
    where = "printed nothing on standard error" if log.err else "printed nothing on standard output"
    words = f"{log.name} {where} (attempt {log.attempt}{f', {log.role}' if log.role else ''})"
    same = (log.name, log.attempt, log.role)
    other = any(one.size and one.err != log.err and (one.name, one.attempt, one.role) == same for one in there)
    if not other:
        return words
    again = f"doflow logs {log.name} --attempt {log.attempt}"
    return f"{words}\n  its standard output: {again}" if log.err else f"{words}\n  its standard error: {again} --err"


def _choose(folder: Path, name: str, args: Namespace) -> Log | None:
    """The newest log of the step (or any of its phases) for the given attempt and role."""
    mine = [
        log
        for log in find_logs(folder)
        if (log.name == name or log.name.startswith(f"{name}:"))
        and log.err == args.err
        and args.attempt in (0, log.attempt)
        and args.role in ("", log.role or "step")
    ]
    return mine[-1] if mine else None


def _missing(run: Run, name: str, args: Namespace, there: list[Log]) -> UsageError:
    what = " error log of" if args.err else " log of"
    attempt = f", attempt {args.attempt}" if args.attempt else ""
    names = sorted({log.name for log in there})
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean: doflow logs {near[0]}" if near and near[0] != name else "doflow logs   lists them"
    tried = sorted({log.attempt for log in there if log.name == name and log.err == args.err})
    if args.attempt and tried:
        numbers = ", ".join(str(number) for number in tried)
        return UsageError(
            f"run {run.name} has no{what} {name}{attempt} (its attempts: {numbers})", f"doflow logs {name}"
        )
    known = ", ".join(names) or "none"
    return UsageError(f"run {run.name} has no{what} {name}{attempt} (there are: {known})", hint)


def _list(run: Run, found: list[Log], as_json: bool) -> int:
    if as_json:
        rows = [_row(log) for log in found]
        say_json({"run": run.name, "logs": rows})
        return 0
    shown = [log for log in found if log.size or not log.err]
    if not shown:
        say(f"{run.name} has no logs on this machine")
        return 0
    head = ("STEP", "ATTEMPT", "", "BYTES", "CHANGED", "FILE")
    table([head, *(_cells(log) for log in shown)])
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
