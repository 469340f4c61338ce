"""`git.verify`: a phase's commit is shown to the project's own git hooks, as `git commit` would do it.

Only hooks that are unchanged since the run started are run, so that an agent cannot install one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from doflow.runs import jobs
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import atomic_files
from doflow.util.errors import WorldError
from doflow.util.process import runner
from doflow.util.process.runner import Command

_RECORD = "hooks.json"


def record_hooks(context: RunContext) -> None:
    """Record the hooks once per run, before its first agent."""
    path = context.state_dir / _RECORD
    if not path.exists():
        atomic_files.write_file(str(path), json.dumps(_now(context), sort_keys=True).encode() + b"\n")


def check_hooks_unchanged(context: RunContext) -> None:
    """Raise if the hooks have changed since the run started."""
    if (context.state_dir / _RECORD).exists():
        _same(context)


def make_commit_verifier(job: Job, context: RunContext) -> Callable[[str, str], str]:
    """For `commit`: runs pre-commit, prepare-commit-msg and commit-msg, each of which may reject; returns the message."""

    def verify(index: str, message: str) -> str:
        _same(context)
        _run("pre-commit", (), job, context, index)
        note = os.path.join(context.head.git_dir, "doflow-message")
        atomic_files.write_file(note, message.encode("utf-8", "surrogateescape"), sync=False)
        try:
            _run("prepare-commit-msg", (note, "message"), job, context, index)
            _run("commit-msg", (note,), job, context, index)
            return _message(Path(note).read_bytes().decode("utf-8", "surrogateescape"), message)
        finally:
            os.unlink(note)

    return verify


def run_post_commit(job: Job, context: RunContext) -> None:
    """Run post-commit, which cannot reject the commit; failures become warnings."""
    try:
        _run("post-commit", (), job, context, "")
    except WorldError as error:
        context.events.add("warning", **job.where, message=error.message, hint=error.hint)


def _message(edited: str, message: str) -> str:
    """A hook may change the message; doflow's trailers are kept."""
    trailers = [line for line in message.splitlines() if line.startswith("Doflow-")]
    if all(line in edited.splitlines() for line in trailers):
        return edited
    return edited.rstrip("\n") + "\n\n" + "\n".join(trailers) + "\n"


def _run(name: str, args: tuple[str, ...], job: Job, context: RunContext, index: str) -> None:
    program = os.path.join(_folder(context), name)
    if not (os.path.isfile(program) and os.access(program, os.X_OK)):
        return
    log = jobs.log_path(job, context, 1, name)
    Path(log).unlink(missing_ok=True)
    env = context.shell | {"GIT_EDITOR": ":"} | ({"GIT_INDEX_FILE": index} if index else {})
    command = Command((program, *args), env=env, cwd=context.head.top)
    result = runner.run(command, log, log, jobs.job_timeout(job, context))
    if result.code or result.stopped:
        last = "\n".join(f"    {line}" for line in runner.tail(log, 1500).strip().splitlines()[-12:])
        words = runner.explain(result, (f"the hook {name}",))
        raise WorldError(
            f"{words}\n{last}" if last else words,
            hint=f"its output is in {log}\n  fix the files, or commit them yourself, then: doflow adopt {job.name}",
        )


def _folder(context: RunContext) -> str:
    if path := context.git.setting("core.hookspath"):
        return os.path.join(context.head.top, os.path.expanduser(path))
    return os.path.join(context.head.common_dir, "hooks")


def _now(context: RunContext) -> dict[str, str]:
    """Digest and mode of every file next to the hooks; for a folder like `.husky/_` also of its parent."""
    folder = os.path.normpath(_folder(context))
    above = os.path.dirname(folder)
    head = context.head
    inside = above.startswith(head.top + os.sep) and above not in (head.git_dir, head.common_dir)
    found = {"hooks": os.path.relpath(folder, head.top)}
    for place, _, names in os.walk(above if inside else folder):
        for name in names:
            path = os.path.join(place, name)
            if not name.endswith(".sample"):
                mode = os.lstat(path).st_mode
                content = os.readlink(path) if os.path.islink(path) else atomic_files.file_digest(path)
                found[os.path.relpath(path, head.top)] = f"{mode:o} {content}"
    return found


def _same(context: RunContext) -> None:
    path = context.state_dir / _RECORD
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        known = {}
    now = _now(context)
    changed = sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name))
    if changed:
        raise WorldError(
            f"`git.verify`: the hooks have changed since the run started: {', '.join(changed)}",
            hint=f"review them; to trust them: rm {path.relative_to(context.root)}; then run again",
        )
