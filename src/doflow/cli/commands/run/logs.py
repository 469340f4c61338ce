"""`doflow logs`: what agents and commands said, made safe for a terminal; with --follow, while they say it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from doflow.cli.context import Desk
from doflow.cli.output import say, say_json, table, warn
from doflow.cli.report import log_listing as logfiles
from doflow.cli.report.log_listing import Log
from doflow.config import project
from doflow.runs import mutex as holder
from doflow.runs.catalogue import Run
from doflow.runs.state import event_log as ledger
from doflow.util import stdio as outlet
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "What agents and commands said; without STEP, which logs there are. Hostile characters are written out."
EXAMPLES = """\
  doflow logs                     the logs of the run of this branch
  doflow logs plan                the last attempt of a step
  doflow logs implement:2 --attempt 1
  doflow logs plan --follow       as it is written
  doflow logs plan --err          its complaints
  doflow logs test --role repair  what the agent said that mended a command
  doflow logs plan --json         one document with the text in it; with --follow one object per line"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", nargs="?", default="", help="a step, or a phase: implement:2")
    parser.add_argument("--run", default="", help="the run that is meant: its name or number")
    parser.add_argument("--attempt", type=int, default=0, help="which attempt (default: the last)")
    parser.add_argument(
        "--role", default="", help="whose: step, repair, … (default: a command's own output, else the last)"
    )
    parser.add_argument("--err", action="store_true", help="what it complained about (stderr)")
    parser.add_argument("--follow", action="store_true", help="go on printing until nobody works any more")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON document: the list, or of a STEP its log with the text; with --follow one object per line",
    )


def logs(args: Namespace) -> int:
    root = project.find()
    desk = Desk(root)
    run = desk.run(args.run)
    folder = root / ".doflow" / "runs" / run.name / "logs"
    if not args.step:
        return _list(run, logfiles.found(folder), args.json)
    said = args.step.removeprefix(f"{run.flow}:")
    name = said.replace("/", ":")
    args.role = args.role or ("step" if _is_command(desk, run, said) else "")
    log = _choose(folder, name, args)
    while log is None and args.follow and holder.held(root):
        time.sleep(0.1)
        log = _choose(folder, name, args)
    if log is None and not args.err and not args.attempt and _done(folder.parent / "events.jsonl", name):
        return _nothing(run, name, said, args, logfiles.found(folder))
    if log is None:
        raise _missing(run, name, args, logfiles.found(folder))
    going = (lambda: holder.held(root) and not outlet.gone()) if args.follow else (lambda: False)
    if args.json:
        return _print_json(run, log, going, args.follow)
    return _print(log, going, folder)


def _is_command(desk: Desk, run: Run, said: str) -> bool:
    """Of a command its own output is meant, not what the agent said that mended it."""
    if run.flow not in desk.session.project.about:
        return False
    step = desk.session.project.flow(run.flow).step(said)
    return step is not None and step.kind == "shell"


def _nothing(run: Run, name: str, said: str, args: Namespace, there: list[Log]) -> int:
    if args.json:
        say_json({"run": run.name, "step": name, "text": ""})
        return 0
    others = [log.role for log in there if log.name == name and log.role and log.size and not log.err]
    told = f"\n  what its agent said: doflow logs {said} --role {others[-1]}" if others else ""
    warn(f"{name} said nothing{told}")
    return 0


def _print(log: Log, going: Callable[[], bool], folder: Path) -> int:
    from doflow.util.text import clean

    said = False
    for text in logfiles.texts(log.path, going):
        said = True
        sys.stdout.write(clean(text))
        sys.stdout.flush()
    if not said:
        warn(_silent(log, logfiles.found(folder)))
    return 0


def _print_json(run: Run, log: Log, going: Callable[[], bool], follow: bool) -> int:
    """The text as it is, safe by JSON's own escapes."""
    import json

    about = {"run": run.name, **_row(log)}
    if not follow:
        say_json({**about, "text": "".join(logfiles.texts(log.path, going))})
        return 0
    for text in logfiles.texts(log.path, going):
        sys.stdout.write(json.dumps({**about, "text": text}) + "\n")
        sys.stdout.flush()
    return 0


def _done(events: Path, name: str) -> bool:
    """A command that said nothing leaves no log, only its beginning and its end in the ledger."""
    begun = ("step_starting", "step_complete")
    return any(entry["event"] in begun and entry.get("step") == name for entry in ledger.read(events))


def _silent(log: Log, there: list[Log]) -> str:
    """An empty log in words (on stderr: the log itself stays empty), and where else something was said."""
    where = "complained about nothing" if log.err else "said nothing on standard output"
    words = f"{log.name} {where} (attempt {log.attempt}{f', {log.role}' if log.role else ''})"
    same = (log.name, log.attempt, log.role)
    other = any(one.size and one.err != log.err and (one.name, one.attempt, one.role) == same for one in there)
    if not other:
        return words
    again = f"doflow logs {log.name} --attempt {log.attempt}"
    return f"{words}\n  what it said: {again}" if log.err else f"{words}\n  its complaints: {again} --err"


def _choose(folder: Path, name: str, args: Namespace) -> Log | None:
    """The newest log of the step (of any of its phases, if it has some) and of the attempt that was named."""
    mine = [
        log
        for log in logfiles.found(folder)
        if (log.name == name or log.name.startswith(f"{name}:"))
        and log.err == args.err
        and args.attempt in (0, log.attempt)
        and args.role in ("", log.role or "step")
    ]
    return mine[-1] if mine else None


def _missing(run: Run, name: str, args: Namespace, there: list[Log]) -> UsageError:
    import difflib

    what = " complaints of" if args.err else " log of"
    attempt = f", attempt {args.attempt}" if args.attempt else ""
    names = sorted({log.name for log in there})
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean: doflow logs {near[0]}" if near and near[0] != name else "doflow logs lists what there is"
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
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(log.changed))
    about = {"step": log.name, "attempt": log.attempt, "role": log.role or "step", "err": log.err}
    return {**about, "bytes": log.size, "changed": when, "path": str(log.path)}


def _cells(log: Log) -> tuple[str, ...]:
    kind = " ".join(word for word in (log.role, "stderr" if log.err else "") if word)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(log.changed))
    return (log.name, str(log.attempt), kind, f"{log.size:,}", when, log.path.name)
