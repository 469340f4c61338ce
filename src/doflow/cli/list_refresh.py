"""`doflow tasks refresh`: an agent proposes a new version of a run's task list, a person sees the diff and accepts it."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import stat
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from doflow.cli import decisions, next_command
from doflow.cli.context import CommandContext
from doflow.cli.output import say, warn
from doflow.engine.jobs import list_refresh
from doflow.engine.lifecycle.session import CODES, ActiveRun
from doflow.flow import markdown
from doflow.flow.model import Outcome, Step
from doflow.flow.task_lists import parse_task_list
from doflow.runs.catalogue import Run
from doflow.runs.context import RunContext
from doflow.util import atomic_files, hints
from doflow.util.errors import UsageError

_PAUSED = CODES["paused"]
_PROPOSAL = "list-refresh.json"


def refresh(args: Namespace, text: str) -> int:
    """`text`: of the file, if one was named."""
    with decisions.open_run(_find_run(args.file), agent=args.agent) as (command, work):
        context = work.context
        step, path = _list_of(work, args.file)
        shown = os.path.relpath(context.root / path)
        old = text or _read(context.root / path)
        command.session.begin(work)
        kept = _Proposal(context, list_refresh.material_digest(step, context, old))
        new = kept.read() if args.yes else ""
        if not new:
            warn(f"asking {context.profile_of(step)} for a new version of {shown}")
            outcome = list_refresh.propose_list(step, context, work.fence, old)
            if not outcome.ok:
                return _failed(outcome, context, shown)
            new = outcome.text
        if new == old:
            say(f"{shown} is up to date: nothing to change")
            return 0
        _show(shown, old, new)
        accept = f"doflow tasks refresh {shlex.quote(shown)} -y"
        if not args.yes and not sys.stdin.isatty():
            kept.write(new)
            say(f"\n{shown} was not changed. To accept this version:\n  {accept}")
            return _PAUSED
        if not args.yes and not _agreed(shown):
            say(f"{shown} was not changed")
            return _PAUSED
        _write(context.root / path, old, new, shown)
        kept.remove()
        say(f"\nwrote {shown}\ncontinue with:\n  {_continue(context, path)}")
        return 0


class _Proposal:
    """A version that was shown to someone who could not be asked: `-y` accepts that one, without another call."""

    def __init__(self, context: RunContext, of: str) -> None:
        self._file, self._of = context.state_dir / _PROPOSAL, of

    def read(self) -> str:
        """The version for these inputs; '' = none."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            held = json.loads(self._file.read_text("utf-8"))
            return str(held["text"]) if held["of"] == self._of else ""
        return ""

    def write(self, text: str) -> None:
        atomic_files.write_file(self._file, json.dumps({"of": self._of, "text": text}).encode())

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)


def _find_run(file: str) -> str:
    """The name of the run that works on a list; '' = that of this branch."""
    if not file:
        return ""
    command = CommandContext()
    path = os.path.relpath(os.path.realpath(file), os.path.realpath(command.root))
    found = [run for run in command.runs() if _works_on(run, path)]
    if not found:
        message = f"no run works on {file} yet; the agent, the budget and the logs of a refresh are those of its run"
        raise UsageError(message, f"start one: doit implement --tasks={shlex.quote(path)}")
    return found[-1].name


def _works_on(run: Run, path: str) -> bool:
    return run.dir == os.path.dirname(path) or dict(run.params).get("tasks") == path


def _list_of(work: ActiveRun, file: str) -> tuple[Step, str]:
    """The implement step and its list."""
    context = work.context
    lists = [(step, context.phases(step)) for step in context.flow.steps if step.kind == "implement" and step.phases]
    lists = [(step, path) for step, path in lists if not markdown.is_backlog(path) and (context.root / path).is_file()]
    wanted = os.path.realpath(file) if file else ""
    for step, path in lists:
        if not file or os.path.realpath(context.root / path) == wanted:
            return step, path
    names = ", ".join(dict.fromkeys(path for _, path in lists)) or "none"
    what = (
        f"{file} is not a task list of run {context.run.name}" if file else f"run {context.run.name} has no task list"
    )
    raise UsageError(f"{what} (its lists: {names})", "doflow status")


def _failed(outcome: Outcome, context: RunContext, shown: str) -> int:
    hint = hints.text(outcome.hint, outcome.next, context.target)
    warn(f"ERROR: {outcome.reason}; {shown} was not changed" + (f"\n  hint: {hint}" if hint else ""))
    return CODES.get(outcome.status.value, 1)


def _show(path: str, old: str, new: str) -> None:
    for line in difflib.unified_diff(_plain(old), _plain(new), f"a/{path}", f"b/{path}", lineterm=""):
        say(line)
    known = {problem.message for problem in parse_task_list(old).problems}
    for problem in parse_task_list(new).problems:
        if problem.message not in known:
            say(f"warning: line {problem.line} of the new version: {problem.message}")


def _plain(text: str) -> list[str]:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")


def _agreed(path: str) -> bool:
    sys.stdout.write(f"\nWrite this version to {path}? Ticked tasks stay as they are. [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _write(path: Path, old: str, new: str, shown: str) -> None:
    if _read(path) != old:
        raise UsageError(f"{shown} was changed in the meantime: nothing was written", "run the same command again")
    mode = stat.S_IMODE(os.stat(path).st_mode)
    atomic_files.write_file(path, new.encode("utf-8", "surrogateescape"), mode)


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _continue(context: RunContext, path: str) -> str:
    """What to type next: the list is the person's now."""
    return "\n  ".join((*_before(context, path), next_command.continue_command(context)))


def _before(context: RunContext, path: str) -> Iterator[str]:
    maker = next((step.id for step in context.flow.steps if path in map(context.files.path, step.makes)), "")
    if maker:
        yield f"doflow adopt {maker}"
    elif not path.startswith(f"{context.run.dir}/"):  # a phase starts with a clean working tree
        yield f'git commit -m "Refresh the task list" -- {shlex.quote(os.path.relpath(context.root / path))}'
