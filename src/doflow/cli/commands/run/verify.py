"""`doflow verify`: do lock, files, ledger, commits and state agree? Writes nothing."""

from __future__ import annotations

import argparse

from doflow.cli import output as commands
from doflow.cli.context import Desk
from doflow.cli.report import audit as verifying
from doflow.cli.report.audit import Finding
from doflow.runs import leftovers as litter, mutex as holder
from doflow.runs.catalogue import Run
from doflow.util.errors import DoflowError

ABOUT = "check that lock, files, ledger, commits and state agree; says what does not, and what to type"
EXAMPLES = """\
  doflow verify                   every run of the project
  doflow verify 001               one run
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="the run: its name or number (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def verify(args: argparse.Namespace) -> int:
    desk = Desk()
    chosen = (desk.run(args.run),) if args.run else desk.runs()
    held = holder.held(desk.root)
    found: list[Finding] = []
    passed: list[str] = []
    for run in chosen:
        found += _run(desk, run, held, passed)
    if not args.run and not held:
        found += _project(desk, passed)
    if args.json:
        rows = [{name: getattr(one, name) for name in Finding.__slots__} for one in found]
        commands.say_json({"ok": not found, "runs": [run.name for run in chosen], "findings": rows, "remarks": passed})
    else:
        _say(found, passed, len(chosen))
    return 1 if found else 0


def _run(desk: Desk, run: Run, held: bool, passed: list[str]) -> tuple[Finding, ...]:
    folder = desk.root / run.dir
    try:
        world = desk.work(run).world
        if (not folder.exists() and world.head.branch != run.branch) or verifying.elsewhere(world):
            if lost := verifying.of_branch(world):
                return (lost,)
            passed.append(f"{run.name} is on branch {run.branch}: git switch {run.branch} && doflow verify {run.name}")
            return tuple(verifying.of_ledger(run, world.state_dir / "events.jsonl"))
        if held:
            passed.append(f"{run.name}: somebody works in this project now; look again when that is over")
        return verifying.of_run(world, held)
    except DoflowError as error:
        return (Finding(run.name, "run", error.message, error.hint),)


def _project(desk: Desk, passed: list[str]) -> list[Finding]:
    """What lies around and belongs to nobody."""
    root = desk.root
    layout = desk.session.project.layout
    mend = "doflow clean   removes it"
    for path in litter.temporary(root, layout):  # it does no harm
        passed.append(f"{path.relative_to(root)} is a half-written file of a killed process: {mend}")
    lost = [path.relative_to(root) for path in litter.orphans(root, {run.name for run in desk.runs()})]
    return [Finding("", "orphan", f"{path}/ is the state of no run", mend) for path in lost]


def _say(found: list[Finding], passed: list[str], runs: int) -> None:
    for one in found:
        commands.say(f"{one.run + ': ' if one.run else ''}{one.message}")
        commands.say(f"  next: {one.hint}")
    for words in passed:
        commands.say(f"({words})")
    count = f"{runs} run{'s' if runs != 1 else ''}"
    if found:
        commands.say(f"{len(found)} finding{'s' if len(found) > 1 else ''} in {count}; nothing was changed")
    else:
        commands.say(f"{count}: lock, files, ledger, commits and state agree")
