"""A run whose branch does not exist any more, renamed or deleted: that it is so, and what to type."""

from __future__ import annotations

import shlex

from doflow.git import repository as look
from doflow.runs.context import World
from doflow.runs.state import event_log as ledger


def gone(world: World) -> bool:
    run, head = world.run, world.head
    return bool(run.branch) and run.branch != head.branch and run.branch not in look.branches(head)


def bring_back(world: World) -> str:
    """The command that makes the branch anew, at the last commit of it that the ledger knows, and goes there; '' where
    git does not have that commit any more."""
    told = (str(entry.get("commit") or "") for entry in ledger.read(world.state_dir / "events.jsonl"))
    known = [commit for commit in told if commit]
    if not known or world.git.call("cat-file", "-e", f"{known[-1]}^{{commit}}")[0]:
        return ""
    return f"git switch -c {shlex.quote(world.run.branch)} {known[-1][:12]}"


def words(world: World) -> str:
    return f"its branch {world.run.branch} does not exist any more (renamed, or deleted)"


def anew(world: World) -> str:
    """Where nothing of it is here: back, or another run."""
    back = bring_back(world)
    new = f'doit {world.run.flow} --new --goal="…"'
    return f"{back} && {world.again}   or, to start another run:   {new}" if back else new
