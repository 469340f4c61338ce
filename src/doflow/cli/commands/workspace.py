"""`doflow workspace`: what interrupted or unfinished jobs of a run have written in their workspaces."""

from __future__ import annotations

import difflib
import os
from argparse import ArgumentParser, Namespace

from doflow.cli import output
from doflow.cli.context import CommandContext
from doflow.engine.lifecycle.session import ActiveRun
from doflow.guard.workspace.changes import kept_changes
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import JobStorage
from doflow.util.errors import UsageError
from doflow.util.text import clean

ABOUT = "what interrupted jobs have written in their workspaces: nothing of it is in the project"
EXAMPLES = """\
  doflow workspace show                   the jobs that have one, with their files
  doflow workspace diff implement:2       what it changed
  doflow workspace discard implement:2    remove it
"""
_LARGEST = 1_000_000


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="show|diff|discard", required=True)
    showing = verbs.add_parser("show", help="list the workspaces of a run")
    differing = verbs.add_parser("diff", help="show what a job changed")
    discarding = verbs.add_parser("discard", help="remove the workspace of a job")
    for one in (differing, discarding):
        one.add_argument("job", metavar="JOB", help="a step, or a phase as STEP:NUMBER")
    for one in (showing, differing, discarding):
        one.add_argument(
            "--run", default="", metavar="RUN", help="run name or number (default: the run of this branch)"
        )
        one.add_argument("--json", action="store_true", help="print one JSON object")


def workspace(args: Namespace) -> int:
    command = CommandContext()
    work = command.work(command.run(args.run))
    found = {store.name: store for store in work.fence.layered.storage.jobs()}
    if args.deed == "show":
        return _show(work, found, args.json)
    name = args.job.removeprefix(f"{work.context.flow.name}:")
    if name not in found:
        have = ", ".join(found) or "none"
        raise UsageError(
            f"{name} has no workspace in run {work.context.run.name} (jobs with one: {have})", "doflow workspace show"
        )
    if args.deed == "diff":
        text = "".join(_diff(work, change) for change in kept_changes(work.context, found[name]))
        return output.report(
            args.json, {"job": name, "diff": text}, clean(text.rstrip("\n")) or f"{name} changed nothing"
        )
    with command.changing():
        found[name].remove()
    return output.report(
        args.json, {"job": name, "discarded": True}, f"removed the workspace of {name}; the project is as it was"
    )


def _show(work: ActiveRun, found: dict[str, JobStorage], as_json: bool) -> int:
    rows = [(name, _state(work, store), kept_changes(work.context, store)) for name, store in found.items()]
    data = [{"job": name, "state": state, "files": [one.path for one in changes]} for name, state, changes in rows]
    if as_json or not rows:
        nothing = f"run {work.context.run.name} has no unfinished workspace"
        return output.report(as_json, {"run": work.context.run.name, "workspaces": data}, nothing)
    for name, state, changes in rows:
        output.say(f"{name}: {state}, {len(changes)} changed file{'' if len(changes) == 1 else 's'}")
        for change in changes:
            output.say(f"    {change.kind:8} {clean(change.path)}")
    output.say(f"next: doflow workspace diff {rows[0][0]}   or   doflow workspace discard {rows[0][0]}")
    return 0


def _state(work: ActiveRun, store: JobStorage) -> str:
    intent = store.applying()
    if intent is not None:
        return f"interrupted while applying {len(intent['writes'])} files"
    return "its agent has returned" if store.name in work.context.record.returned else "interrupted"


def _diff(work: ActiveRun, change: LayerChange) -> str:
    before, after = os.path.join(work.context.root, change.path), change.source
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"{change.kind}: {change.path} (not a text, or too large to show)\n"
    names = (
        f"a/{change.path}" if os.path.lexists(before) else "/dev/null",
        f"b/{change.path}" if after else "/dev/null",
    )
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(path: str) -> list[str] | None:
    """The lines of a small text file, none if it does not exist; None if it is something else."""
    if not path or not os.path.lexists(path):
        return []
    if os.path.islink(path):
        return [f"link to {os.readlink(path)}\n"]
    if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST:
        return None
    with open(path, "rb") as stream:
        data = stream.read()
    return None if b"\0" in data else data.decode("utf-8", "replace").splitlines(keepends=True)
