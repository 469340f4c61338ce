"""Runs without a lock file or branch: restored from HEAD or from commit trailers."""

from __future__ import annotations

import os
from pathlib import Path

from doflow.flow.model import Flow
from doflow.git import history, refs
from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.runs import catalogue, event_log, lockfile, next_steps
from doflow.runs.catalogue import Run
from doflow.runs.context import RunContext
from doflow.util.hints import Next


def with_lost_runs(root: Path, flow: Flow, layout: str, head: Head, known: tuple[Run, ...]) -> tuple[Run, ...]:
    """The known runs and those found in git history. Call it with the run lock held: it may restore a lock file."""
    lost = [name for name in _folders(root / layout) if not (root / layout / name / lockfile.NAME).exists()]
    if not lost or not head.commit:
        return known
    found = {run.name: run for run in known}
    for name in lost:
        run = _remembered(root, flow, f"{layout}/{name}", head)
        if run is not None:
            found[name] = run
    return tuple(found[name] for name in sorted(found))


def _remembered(root: Path, flow: Flow, folder: str, head: Head) -> Run | None:

    git = Repository(head)
    below = os.path.relpath(head.root, head.top)
    data = history.file_at(git, "HEAD", os.path.normpath(os.path.join(below, folder, lockfile.NAME)))
    if data is not None and not lockfile.has_conflict(data):
        lockfile.write_lock(root / folder / lockfile.NAME, data)
        return catalogue.run_in_folder(root, folder)
    name = os.path.basename(folder)
    steps = {commit.get("Doflow-Step", "") for commit in history.run_commits(git, name)} - {""}
    if not steps or not all(flow.step(step) for step in steps):
        return None
    goal = catalogue.read_goal(root / folder)
    branch = name if name in refs.branch_names(head) else head.branch
    return Run(name, flow.name, folder, goal, catalogue.digest(goal), branch)


def _folders(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def branch_is_gone(context: RunContext) -> bool:
    run, head = context.run, context.head
    return bool(run.branch) and run.branch != head.branch and run.branch not in refs.branch_names(head)


def restore_branch_command(context: RunContext) -> tuple[str, ...]:
    """The command that recreates the branch at its last commit in the event log and switches to it; empty if git no longer
    has that commit."""
    logged = (str(entry.get("commit") or "") for entry in event_log.read_events(context.state_dir / "events.jsonl"))
    known = [commit for commit in logged if commit]
    if not known or context.git.call("cat-file", "-e", f"{known[-1]}^{{commit}}")[0]:
        return ()
    return "git", "switch", "-c", context.run.branch, known[-1][:12]


def branch_gone_message(context: RunContext) -> str:
    return f"its branch {context.run.branch} no longer exists (renamed or deleted)"


def recovery_commands(context: RunContext) -> tuple[Next, ...]:
    """The commands to continue: restore the branch, or start another run."""
    restore = restore_branch_command(context)
    new = ("doit", context.run.flow, "--new", "--goal=…")
    if not restore:
        return (Next(new),)
    return Next(restore), next_steps.resume(context, link="&&"), Next(new, "to start another run", link="or")
