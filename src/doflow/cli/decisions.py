"""Commands that decide: open and recover the run under the lock, then record and commit the decision."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from doflow.cli import next_command, output
from doflow.cli.context import CommandContext
from doflow.engine.doit import backend
from doflow.engine.lifecycle import recovery, start
from doflow.engine.lifecycle.session import ActiveRun
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.git import refs
from doflow.runs.context import RunContext
from doflow.util import state_folder
from doflow.util.errors import UsageError

PAUSES = (".gate", ".clarify", ".route")


@contextmanager
def open_run(name: str = "", **options: Any) -> Iterator[tuple[CommandContext, ActiveRun]]:
    """Open the run under the run lock, recovered as the next `doit FLOW` would. Nothing is started."""
    command = CommandContext()
    command.session.quiet = True
    with command.changing():
        work = command.work(command.run(name), **options)
        if work.context.run.fresh:
            run = work.context.run
            hint = f"doit {run.flow} --run={run.name}{work.context.lasting_options}"
            if work.context.head.branch != run.branch:
                hint = f"git switch {run.branch}   if it is on that branch; else: doflow status"
            raise UsageError(f"run {run.name} has not been started here yet", hint)
        start.preflight(work.context, paying=False)
        work.back = recovery.recover(work.context, work.fence)
        yield command, work


def git_user_name(context: RunContext) -> str:
    return refs.identity(context.head).partition(" <")[0]


def find_step(work: ActiveRun, name: str) -> Step:
    """A step by any of its names: `plan`, `tiny:plan`, `plan.gate`."""
    bare = name.removeprefix(f"{work.context.flow.name}:")
    for pause in PAUSES:
        bare = bare.removesuffix(pause)
    return CommandContext.step(work, bare)


def require_gate(step: Step, context: RunContext, hint: str) -> None:
    gates = [each.id for each in context.flow.steps if each.kind == "gate" or plan.gate_text(each, context.settings)]
    if step.id not in gates:
        raise UsageError(f"{step.id} has no gate (steps with one: {', '.join(gates) or 'none'})", hint)


def drop_doit_rows(context: RunContext, names: tuple[str, ...]) -> None:
    """Remove doit's rows of these steps, including the marks of `doit forget`."""
    path = context.root / state_folder.DOIT_DATABASE
    if path.exists():
        database = backend.Backend(str(path), json)
        database.drop(f"{context.flow.name}:{name}{pause}" for name in names for pause in ("", *PAUSES))
        database.dump()


def add_options(parser: ArgumentParser) -> None:
    """Add the options of all commands that decide."""
    parser.add_argument("--run", default="", metavar="RUN", help="run name or number (default: the run of this branch)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def print_result(args: Namespace, context: RunContext, message: str, **data: Any) -> int:
    return output.report(args.json, {"run": context.run.name, **data, "message": message}, message)


def conclude(args: Namespace, work: ActiveRun, reason: str, message: str, **data: Any) -> int:
    """Write the status for other programs (no run is active, the same command continues) and print the decision."""
    if reason:
        work.status_file.finish("paused", reason)
    go = next_command.continue_command(work.context)
    return print_result(args, work.context, f"{message}\ncontinue with:\n  {go}", **data)
