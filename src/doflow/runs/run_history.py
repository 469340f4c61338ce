"""What git and other runs know: runs without a lock file or branch, and where the content of a file comes from."""

from __future__ import annotations

import os
from pathlib import Path

from doflow.flow.model import Flow
from doflow.git import head_reader, history, refs
from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.runs import catalogue, event_log, lockfile, next_steps, session_layout
from doflow.runs.catalogue import Run
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Lock
from doflow.util import atomic_files
from doflow.util.errors import DoflowError
from doflow.util.hints import Next


def with_lost_runs(root: Path, flow: Flow, layout: str, head: Head, known: tuple[Run, ...]) -> tuple[Run, ...]:
    """The known runs and those found in git history. Call it with the run lock held: it may restore a lock file."""
    paths = [root / layout / name for name in session_layout.list_folder(root / layout)]
    folders = [path for path in paths if path.is_dir() and not path.is_symlink()]
    lost = [path.name for path in folders if not (path / lockfile.NAME).exists()]
    if not lost or not head.commit:
        return known
    found = {run.name: run for run in known}
    for name in lost:
        run = _remembered(root, flow, f"{layout}/{name}", head)
        if run is not None:
            found[name] = run
    return tuple(found[name] for name in sorted(found))


def _remembered(root: Path, flow: Flow, folder: str, head: Head) -> Run | None:
    """A run from its lock file in HEAD, or from the trailers of its commits."""
    git = Repository(head)
    below = os.path.relpath(head.root, head.top)
    data = history.file_at(git, "HEAD", os.path.normpath(os.path.join(below, folder, lockfile.NAME)))
    if data is not None and not lockfile.has_conflict(data):
        atomic_files.write_file(root / folder / lockfile.NAME, data)
        return catalogue.run_in_folder(root, folder)
    name = os.path.basename(folder)
    steps = {commit.get("Doflow-Step", "") for commit in history.run_commits(git, name)} - {""}
    if not steps or not all(flow.step(step) for step in steps):
        return None
    goal = catalogue.read_goal(root / folder)
    branch = name if name in refs.branch_names(head) else head.branch
    return Run(name, flow.name, folder, goal, catalogue.digest(goal), branch)


def branch_is_gone(context: RunContext) -> bool:
    run, head = context.run, context.head
    return bool(run.branch) and run.branch != head.branch and run.branch not in refs.branch_names(head)


def restore_branch_command(context: RunContext) -> tuple[str, ...]:
    """The command that recreates the branch at its last commit in the event log and switches to it; empty if git no longer
    has that commit."""
    entries = event_log.read_events(context.state_dir / "events.jsonl")
    commits = [str(entry["commit"]) for entry in entries if entry.get("commit")]
    if not commits or context.git.call("cat-file", "-e", f"{commits[-1]}^{{commit}}")[0]:
        return ()
    return "git", "switch", "-c", context.run.branch, commits[-1][:12]


def branch_gone_message(context: RunContext) -> str:
    return f"its branch {context.run.branch} no longer exists (renamed or deleted)"


def recovery_commands(context: RunContext) -> tuple[Next, ...]:
    """The commands to continue: restore the branch, or start another run."""
    restore = restore_branch_command(context)
    new = ("doit", context.run.flow, "--new", "--goal=…")
    if not restore:
        return (Next(new),)
    return Next(restore), next_steps.resume(context, link="&&"), Next(new, "to start another run", link="or")


#: the file is as in HEAD, and no run's lock file lists it
COMMITTED = "commit"


def file_origin(path: str, context: RunContext) -> str:
    """Where the content comes from: `run NAME`, COMMITTED, or '' = a manual edit.

    A changed artifact of this run is a manual edit, even if it is committed or an older version, unless a later run made it.
    """
    if path.startswith(f"{context.run.dir}/"):
        return ""
    held = context.record.artifacts.get(path)
    commit = head_reader.find_head(str(context.root)).commit
    with context.guard:
        safe = bool(commit) and history.is_committed(context.git, commit, f"{context.prefix}{path}")
    if safe or not context.settings.commit_artifacts:
        record = context.record.steps.get(held.step) if held else None
        name = _maker(path, context, record.at if record else "")
        if name:
            return f"run {name}"
    return COMMITTED if safe and held is None else ""


def _maker(path: str, context: RunContext, since: str) -> str:
    """The latest other run after `since` whose lock file has this content, not written by a person."""
    now, found = context.files.digest(path), ("", "")
    for folder in session_layout.run_folders(context.root, context.settings.layout):
        held = _lock(context.root / folder / lockfile.NAME, now) if folder != context.run.dir else None
        made = held.artifacts.get(path) if held else None
        if held is None or made is None or made.digest != now or made.author == "person":
            continue
        record = held.steps.get(made.step)
        if not since or (record is not None and record.at > since):
            found = max(found, (record.at if record else "", held.run))
    return found[1]


_read: dict[Path, tuple[bytes, Lock]] = {}


def _lock(path: Path, digest: str) -> Lock | None:
    """The lock of another run if it contains this digest; None if it cannot be read."""
    try:
        data = path.read_bytes()
        if digest.encode() not in data:
            return None
        if path not in _read or _read[path][0] != data:
            _read[path] = (data, lockfile.parse_lock(data, str(path)))
    except (OSError, DoflowError):
        return None
    return _read[path][1]
