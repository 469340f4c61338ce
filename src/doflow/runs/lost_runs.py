"""Runs whose lock is gone: it comes back from HEAD, and without one there the trailers of their commits are known."""

from __future__ import annotations

import os
from pathlib import Path

from doflow.flow.model import Flow
from doflow.git import repository as look
from doflow.git.head import Head
from doflow.runs import catalogue as listed
from doflow.runs.catalogue import Run
from doflow.runs.state import lockfile as lock


def runs(root: Path, flow: Flow, layout: str, head: Head, known: tuple[Run, ...]) -> tuple[Run, ...]:
    """The known runs, and those that git remembers; called under the run's lock, for a lock is written back."""
    lost = [name for name in _folders(root / layout) if not (root / layout / name / lock.NAME).exists()]
    if not lost or not head.commit:
        return known
    found = {run.name: run for run in known}
    for name in lost:
        run = _remembered(root, flow, f"{layout}/{name}", head)
        if run is not None:
            found[name] = run
    return tuple(found[name] for name in sorted(found))


def _remembered(root: Path, flow: Flow, folder: str, head: Head) -> Run | None:
    from doflow.git import history
    from doflow.git.runner import Git

    git = Git(head)
    below = os.path.relpath(head.root, head.top)
    data = history.show(git, "HEAD", os.path.normpath(os.path.join(below, folder, lock.NAME)))
    if data is not None and not lock.conflicted(data):
        lock.write(root / folder / lock.NAME, data)
        return listed.at(root, folder)
    name = os.path.basename(folder)
    steps = {commit.get("Doflow-Step", "") for commit in history.history(git, name)} - {""}
    if not steps or not all(flow.step(step) for step in steps):
        return None
    goal = listed.read_goal(root / folder)
    branch = name if name in look.branches(head) else head.branch
    return Run(name, flow.name, folder, goal, listed.digest(goal), branch)


def _folders(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
