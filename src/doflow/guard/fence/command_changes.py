"""Commands of the flow inside a job (its check, the command of a `shell` step): what they write is not the agent's.

It stays in place, as after running them by hand, and is not committed. What the job itself has made stays the job's,
even if a command reformats it. Protected files are protected from them too: they may run an agent's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from doflow.git import uncommitted_work
from doflow.guard.fence.scope import Scope, is_git_file
from doflow.guard.snapshot_entries import Change, Snapshot
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job

_MANY = 5


@dataclass(frozen=True, slots=True)
class Running:
    """A command running for a job. What a check may not change is reverted without failing the step; the command of a
    step is treated like an agent."""

    job: Job
    check: bool

    @property
    def words(self) -> str:
        return f"the {'check' if self.check else 'command'} of {self.job.name}"


@dataclass(frozen=True, slots=True)
class Sorted:
    """The changes of commands: outputs of the jobs (`mine`), files that no one may change (`barred`), and the rest (`left`);
    `counted`: the rest without ignored files."""

    mine: tuple[Change, ...]
    barred: tuple[Change, ...]
    left: tuple[Change, ...]
    counted: tuple[Change, ...]


def sort(
    context: RunContext, found: tuple[Change, ...], counted: tuple[Change, ...], scopes: Mapping[str, Scope]
) -> Sorted:
    returned = (context.record.returned.get(name, {}).get("files", {}) for name in scopes)
    made = {path for files in returned for path, digest in files.items() if digest}
    made = made.union(*(scope.makes | scope.lists for scope in scopes.values()))
    names = {change.path for change in counted}
    mine, barred, left = [], [], []
    for change in found:
        if change.path in made:
            mine.append(change)
        elif is_git_file(change.path) or any(scope.protects(change.path) for scope in scopes.values()):
            barred += [change] if change.path in names else []
        else:
            left.append(change)
    return Sorted(tuple(mine), tuple(barred), tuple(left), tuple(c for c in left if c.path in names))


def record(
    context: RunContext, where: Mapping[str, str], before: Snapshot, left: Iterable[Change], work: str
) -> tuple[str, ...]:
    """Record the rest, to tell it later from the user's changes. The user's uncommitted files (in `work`) stay theirs, even
    if a command changed them. Returns the newly recorded paths."""
    held = context.record.command_outputs
    left = tuple(left)
    theirs = uncommitted_work.kept_paths(context.git, work) if left else frozenset()
    found: dict[str, str] = {}
    for path in (change.path for change in left):
        item = before.items.get(path)
        known = path in held and held[path] == (item.value if item is not None else "")
        if known or f"{context.prefix}{path}" not in theirs:
            found[path] = context.files.digest(path)
    new = tuple(path for path in found if path not in held)
    if found:
        context.events.add("left", **where, files=found)
        context.record.add_command_outputs(found)
    return new


def tell_left(context: RunContext, running: Iterable[Running], paths: tuple[str, ...]) -> None:
    """Tracked files that a command has changed: they show up in `git status`, so they are named once."""
    _tell(
        context, running, f"changed {_named(paths)}; the change stays and is not committed by doflow",
        "phases continue; undo it with git restore, or add the file to .gitignore",
    )  # fmt: skip


def tell_barred(context: RunContext, running: Iterable[Running], paths: tuple[str, ...]) -> None:
    _tell(
        context, running, f"changed {_named(paths)}, which is protected; reverted",
        "the changed version: doflow quarantine list; the command may have run code that the agent wrote",
    )  # fmt: skip


def _tell(context: RunContext, running: Iterable[Running], what: str, hint: str) -> None:
    running = tuple(running)
    who = ", ".join(one.words for one in running)
    context.events.add("warning", **running[0].job.where, message=f"{who} {what}", hint=hint)


def _named(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:_MANY]) + (f" and {len(paths) - _MANY} more" if len(paths) > _MANY else "")
