"""`git.verify`: a phase's commit is shown to the project's own git hooks, as `git commit` would do it.

Only hooks that are what they were when the run began are started: an agent that writes one gets nothing run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.process import runner as process
from doflow.util.process.command import Command

_RECORD = "hooks.json"


def remember(world: World) -> None:
    """What the hooks are, written down once per run, before its first agent."""
    path = world.state_dir / _RECORD
    if not path.exists():
        files.write(str(path), json.dumps(_now(world), sort_keys=True).encode() + b"\n")


def check(world: World) -> None:
    """Before anything runs: are the hooks still those that the run began with?"""
    if (world.state_dir / _RECORD).exists():
        _same(world)


def hooks(job: Job, world: World) -> Callable[[str, str], str]:
    """For `commit`: pre-commit, prepare-commit-msg and commit-msg, each of which may refuse; gives the message."""

    def verify(index: str, message: str) -> str:
        _same(world)
        _run("pre-commit", (), job, world, index)
        note = os.path.join(world.head.git_dir, "doflow-message")
        files.write(note, message.encode("utf-8", "surrogateescape"), sync=False)
        try:
            _run("prepare-commit-msg", (note, "message"), job, world, index)
            _run("commit-msg", (note,), job, world, index)
            return _message(Path(note).read_bytes().decode("utf-8", "surrogateescape"), message)
        finally:
            os.unlink(note)

    return verify


def after(job: Job, world: World) -> None:
    """post-commit can refuse nothing any more: what goes wrong there is told."""
    try:
        _run("post-commit", (), job, world, "")
    except WorldError as error:
        world.ledger.add("warning", **job.where, message=error.message, hint=error.hint)


def _message(said: str, ours: str) -> str:
    """A hook may write another message; the trailers that tell doflow what it is stay."""
    trailers = [line for line in ours.splitlines() if line.startswith("Doflow-")]
    missing = [line for line in trailers if line not in said.splitlines()]
    return said if not missing else said.rstrip("\n") + "\n\n" + "\n".join(trailers) + "\n"


def _run(name: str, args: tuple[str, ...], job: Job, world: World, index: str) -> None:
    program = os.path.join(_folder(world), name)
    if not (os.path.isfile(program) and os.access(program, os.X_OK)):
        return
    log = watching.log_path(job, world, 1, name)
    Path(log).unlink(missing_ok=True)
    env = world.shell | {"GIT_EDITOR": ":"} | ({"GIT_INDEX_FILE": index} if index else {})
    command = Command((program, *args), env=env, cwd=world.head.top)
    result = process.run(command, log, log, watching.timeout_of(job, world))
    if result.code or result.stopped:
        last = "\n".join(f"    {line}" for line in process.tail(log, 1500).strip().splitlines()[-12:])
        words = process.explain(result, (f"the hook {name}",))
        raise WorldError(
            f"{words}\n{last}" if last else words,
            hint=f"all it said is in {log}\n  mend the files, or commit them yourself, then: doflow adopt {job.name}",
        )


def _folder(world: World) -> str:
    named = world.git.setting("core.hookspath")
    return (
        os.path.join(world.head.top, os.path.expanduser(named))
        if named
        else os.path.join(world.head.common_dir, "hooks")
    )


def _now(world: World) -> dict[str, str]:
    """Digest and mode of every file beside the hooks; of a folder like `.husky/_` also of what is around it."""
    folder = os.path.normpath(_folder(world))
    above = os.path.dirname(folder)
    inside = above.startswith(world.head.top + os.sep) and above not in (world.head.git_dir, world.head.common_dir)
    found = {"hooks": os.path.relpath(folder, world.head.top)}
    for place, _, names in os.walk(above if inside else folder):
        for name in names:
            path = os.path.join(place, name)
            if not name.endswith(".sample"):
                mode = os.lstat(path).st_mode
                told = os.readlink(path) if os.path.islink(path) else files.digest(path)
                found[os.path.relpath(path, world.head.top)] = f"{mode:o} {told}"
    return found


def _same(world: World) -> None:
    path = world.state_dir / _RECORD
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        known = {}
    now = _now(world)
    changed = sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name))
    if changed:
        raise WorldError(
            f"`git.verify`: the hooks are not what they were when the run began: {', '.join(changed)}",
            hint=f"look at them; to trust them as they are now: rm {path.relative_to(world.root)}; then run again",
        )
