"""Commands of the flow's own inside a job: its check, the command of a `shell` step. What they write is not the agent's.

It stays where it is, as after running them by hand, and belongs to no commit. What the job itself has made stays the
job's, also when a command puts it in order. What is protected is protected from them, too: they may run an agent's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doflow.git import wip
from doflow.guard.fence.scope import Scope, of_git
from doflow.guard.snapshot.entries import Change, Snapshot
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util.records import dataclass

_MANY = 5


@dataclass(frozen=True, slots=True)
class Running:
    """A command at work for a job. What a check may not change is put back without failing the step; the command of a
    step is the step, and is judged as an agent is."""

    job: Job
    check: bool

    @property
    def words(self) -> str:
        return f"the {'check' if self.check else 'command'} of {self.job.name}"


@dataclass(frozen=True, slots=True)
class Sorted:
    """Of what commands changed: what the jobs have made or are to make (`mine`: it is part of the making), what nobody may
    change (`barred`), and what is `left`; `counted`: that, without what git ignores."""

    mine: tuple[Change, ...]
    barred: tuple[Change, ...]
    left: tuple[Change, ...]
    counted: tuple[Change, ...]


def sort(world: World, found: tuple[Change, ...], counted: tuple[Change, ...], scopes: Mapping[str, Scope]) -> Sorted:
    returned = (world.book.returned.get(name, {}).get("files", {}) for name in scopes)
    made = {path for files in returned for path, digest in files.items() if digest}
    made = made.union(*(scope.makes | scope.lists for scope in scopes.values()))
    names = {change.path for change in counted}
    mine, barred, left = [], [], []
    for change in found:
        if change.path in made:
            mine.append(change)
        elif of_git(change.path) or any(scope.protects(change.path) for scope in scopes.values()):
            barred += [change] if change.path in names else []
        else:
            left.append(change)
    return Sorted(tuple(mine), tuple(barred), tuple(left), tuple(c for c in left if c.path in names))


def record(
    world: World, where: Mapping[str, str], before: Snapshot, left: Iterable[Change], work: str
) -> tuple[str, ...]:
    """Write down what is left, so that it is known later from what a person changes. What they had not committed (`work`
    holds it) stays theirs, whatever a command has made of it. Gives the paths that are new in the book."""
    held = world.book.left
    left = tuple(left)
    theirs = wip.names(world.git, work) if left else frozenset()
    found: dict[str, str] = {}
    for path in (change.path for change in left):
        item = before.items.get(path)
        known = path in held and held[path] == (item.value if item is not None else "")
        if known or f"{world.prefix}{path}" not in theirs:
            found[path] = world.digest(path)
    new = tuple(path for path in found if path not in held)
    if found:
        world.ledger.add("left", **where, files=found)
        held.update(found)
    return new


def tell_left(world: World, running: Iterable[Running], paths: tuple[str, ...]) -> None:
    """What git knows and a command has changed: it shows in `git status`, so it is named, once."""
    _tell(
        world, running, f"changed {_named(paths)}, which stays so and is in no commit of doflow's",
        "phases go on beside it; git restore takes it back, and a file that git ignores is never in the way",
    )  # fmt: skip


def tell_barred(world: World, running: Iterable[Running], paths: tuple[str, ...]) -> None:
    _tell(
        world, running, f"changed {_named(paths)}, which is protected: put back as it was",
        "what was made of it: doflow quarantine list; it may be code of the agent's that the command runs",
    )  # fmt: skip


def _tell(world: World, running: Iterable[Running], what: str, hint: str) -> None:
    running = tuple(running)
    who = ", ".join(one.words for one in running)
    world.ledger.add("warning", **running[0].job.where, message=f"{who} {what}", hint=hint)


def _named(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:_MANY]) + (f" and {len(paths) - _MANY} more" if len(paths) > _MANY else "")
