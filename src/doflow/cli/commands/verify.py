"""`doflow verify`: check doflow.lock against files, event log, commits and state. Read-only."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import audit, output
from doflow.cli.audit import Inconsistency
from doflow.cli.context import CommandContext
from doflow.runs import catalogue, mutex
from doflow.runs.catalogue import Run
from doflow.util.errors import DoflowError

ABOUT = "Check doflow.lock against files, event log, commits and state; print what disagrees and how to fix it."
EXAMPLES = """\
  doflow verify                   every run of the project
  doflow verify 001               one run
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="run name or number (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def verify(args: Namespace) -> int:
    desk = CommandContext()
    chosen = (desk.run(args.run),) if args.run else desk.runs()
    held = mutex.is_held(desk.root)
    found: list[Inconsistency] = []
    passed: list[str] = []
    for run in chosen:
        found += _run(desk, run, held, passed)
    if not args.run and not held:
        found += _project(desk, passed)
    if args.json:
        rows = [{name: getattr(one, name) for name in Inconsistency.__slots__} for one in found]
        output.say_json({"ok": not found, "runs": [run.name for run in chosen], "findings": rows, "remarks": passed})
    else:
        _say(found, passed, len(chosen))
    return 1 if found else 0


def _run(desk: CommandContext, run: Run, held: bool, passed: list[str]) -> tuple[Inconsistency, ...]:
    folder = desk.root / run.dir
    try:
        context = desk.work(run).context
        if (not folder.exists() and context.head.branch != run.branch) or audit.is_on_other_branch(context):
            if lost := audit.check_branch(context):
                return (lost,)
            passed.append(f"{run.name} is on branch {run.branch}: git switch {run.branch} && doflow verify {run.name}")
            return tuple(audit.check_event_log(run, context.state_dir / "events.jsonl"))
        if held:
            passed.append(f"{run.name}: a run is active in this project; check again when it has finished")
        return audit.check_run(context, held)
    except DoflowError as error:
        return (Inconsistency(run.name, "run", error.message, error.hint),)


def _project(desk: CommandContext, passed: list[str]) -> list[Inconsistency]:
    """Leftover files that belong to no run."""
    root = desk.root
    layout = desk.session.project.layout
    hint = "doflow clean   removes it"
    for path in catalogue.temporary_files(root, layout):  # it does no harm
        passed.append(f"{path.relative_to(root)} is a temporary file left by a killed process: {hint}")
    lost = [
        path.relative_to(root) for path in catalogue.orphaned_state_folders(root, {run.name for run in desk.runs()})
    ]
    return [Inconsistency("", "orphan", f"{path}/ does not belong to any run", hint) for path in lost]


def _say(found: list[Inconsistency], passed: list[str], runs: int) -> None:
    for one in found:
        output.say(f"{one.run + ': ' if one.run else ''}{one.message}")
        output.say(f"  next: {one.hint}")
    for words in passed:
        output.say(f"({words})")
    count = f"{runs} run{'s' if runs != 1 else ''}"
    if found:
        output.say(f"{len(found)} finding{'s' if len(found) > 1 else ''} in {count}; nothing was changed")
    else:
        output.say(f"{count}: lock file, files, event log, commits and state agree")
