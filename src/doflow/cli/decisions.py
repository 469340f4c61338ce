"""Commands that decide: open and recover the run under the lock, then record and commit the decision."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from doflow.cli import next_command, output
from doflow.cli.context import CommandContext
from doflow.engine.doit import backend as state
from doflow.engine.jobs import commit
from doflow.engine.lifecycle import recovery, start
from doflow.engine.lifecycle.session import ActiveRun
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.git import refs
from doflow.runs.context import RunContext
from doflow.util import state_folder
from doflow.util.errors import UsageError


@contextmanager
def open_run(run: str = "") -> Iterator[tuple[CommandContext, ActiveRun]]:
    """Open the run under the run lock, recovered as the next `doit FLOW` would. Nothing is started."""
    command = CommandContext()
    command.session.quiet = True
    with command.changing():
        work = command.work(command.run(run))
        if work.context.run.fresh:
            name = work.context.run.name
            raise UsageError(f"run {name} has not been started here yet", _unbegun(work.context))
        start.preflight(work.context, paying=False)
        work.back = recovery.recover(work.context, work.fence)
        yield command, work


def _unbegun(context: RunContext) -> str:
    if context.head.branch != context.run.branch:
        return f"git switch {context.run.branch}   if it is on that branch; else: doflow status"
    return f"doit {context.flow.name} --run={context.run.name}{context.lasting_options}"


def commit_decision(work: ActiveRun, subject: str, paths: tuple[str, ...] = (), step: str = "") -> str:
    """Write and commit the lock file with the files of the decision; safe to repeat."""
    return commit.commit_lock(work.context, subject, paths, step)


def mark_paused(work: ActiveRun, reason: str) -> None:
    """Write the status for other programs: no run is active, and the same command continues."""
    work.status_file.finish("paused", reason)


def read_status(context: RunContext) -> str:
    """The status on disk ('' = none)."""
    try:
        return str(json.loads((context.state_dir / "pipeline-state.json").read_bytes())["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def git_user_name(context: RunContext) -> str:
    """The user's name in git."""
    return refs.identity(context.head).partition(" <")[0]


def find_step(work: ActiveRun, said: str) -> Step:
    """A step by any of its names: `plan`, `tiny:plan`, `plan.gate`."""
    bare = said.removeprefix(f"{work.context.flow.name}:")
    for part in (".gate", ".clarify", ".route"):
        bare = bare.removesuffix(part)
    return CommandContext.step(work, bare)


def has_gate(step: Step, context: RunContext) -> bool:
    return step.kind == "gate" or bool(plan.gate_text(step, context.settings))


def drop_doit_rows(context: RunContext, names: tuple[str, ...]) -> None:
    """Remove doit's rows of these steps, including the marks of `doit forget`."""
    path = context.root / state_folder.DOIT_DATABASE
    if path.exists():
        parts = ("", ".clarify", ".gate", ".route")
        backend = state.Backend(str(path), json)
        backend.drop(f"{context.flow.name}:{name}{part}" for name in names for part in parts)
        backend.dump()


def continue_command(context: RunContext) -> str:
    """The command that continues the run."""
    return next_command.continue_command(context)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of all commands that decide."""
    parser.add_argument("--run", default="", metavar="RUN", help="run name or number (default: the run of this branch)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def print_result(args: Namespace, words: str, **data: Any) -> int:
    """Print what happened, as text or as JSON."""
    if args.json:
        output.say_json(data | {"message": words})
    else:
        output.say(words)
    return 0
