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
    command = CommandContext()
    chosen = (command.run(args.run),) if args.run else command.runs()
    held = mutex.is_held(command.root)
    passed: list[str] = []
    found = [(run.name, each) for run in chosen for each in _run(command, run, held, passed)]
    if not args.run and not held:
        found += [("", each) for each in _project(command, passed)]
    if args.json:
        rows = [{"run": run, **each._asdict()} for run, each in found]
        output.say_json({"ok": not found, "runs": [run.name for run in chosen], "findings": rows, "remarks": passed})
    else:
        _say(found, passed, output.count_of(len(chosen), "run"))
    return 1 if found else 0


def _run(command: CommandContext, run: Run, held: bool, passed: list[str]) -> tuple[Inconsistency, ...]:
    folder = command.root / run.dir
    try:
        context = command.work(run).context
        if (not folder.exists() and context.head.branch != run.branch) or audit.lock_is_on_other_branch(context):
            if lost := tuple(audit.check_branch(context)):
                return lost
            passed.append(f"{run.name} is on branch {run.branch}: git switch {run.branch} && doflow verify {run.name}")
            return tuple(audit.check_event_log(context))
        if held:
            passed.append(f"{run.name}: a run is active in this project; check again when it has finished")
        return audit.check_run(context, held)
    except DoflowError as error:
        return (Inconsistency("run", error.message, error.hint),)


def _project(command: CommandContext, passed: list[str]) -> list[Inconsistency]:
    """Leftover files that belong to no run."""
    root, hint = command.root, "doflow clean   removes it"
    for path in catalogue.temporary_files(root, command.session.project.layout):  # it does no harm
        passed.append(f"{path.relative_to(root)} is a temporary file left by a killed process: {hint}")
    lost = catalogue.orphaned_state_folders(root, {run.name for run in command.runs()})
    return [Inconsistency("orphan", f"{path.relative_to(root)}/ does not belong to any run", hint) for path in lost]


def _say(found: list[tuple[str, Inconsistency]], passed: list[str], runs: str) -> None:
    for run, each in found:
        output.say(f"{run + ': ' if run else ''}{each.message}\n  next: {each.hint}")
    for words in passed:
        output.say(f"({words})")
    if found:
        output.say(f"{output.count_of(len(found), 'finding')} in {runs}; nothing was changed")
    else:
        output.say(f"{runs}: lock file, files, event log, commits and state agree")
