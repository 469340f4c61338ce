"""Files that control git and doflow itself: git's config, hooks, refs, HEAD and index; doflow's own records.

Saved before agents run, compared after, restored without asking git. What an honest agent does with git (add, commit, a
branch, a stash) is undone with a warning: its files stay, its commits are kept under a ref of ours. What would change how
git or doflow behave (config, hooks, attributes, records) fails the step.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doflow.git import refs
from doflow.git.repository import Repository
from doflow.guard import git_areas
from doflow.guard.git_areas import Held
from doflow.guard.quarantine import Keep
from doflow.guard.snapshot_entries import Change
from doflow.runs.context import RunContext
from doflow.util import atomic_files, state_folder
from doflow.util.errors import WorldError

_FORMAT = 3
_LET = ("refs/doflow/", "refs/remotes/", "refs/bisect/")
Counts = Callable[[str, Change], bool]


@dataclass(frozen=True, slots=True)
class Undone:
    """`refused`: paths whose change fails the step; `told`: messages about what was reverted without that."""

    refused: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MovedRef:
    """A ref that was moved from `old` to `new` ('' = deleted), which stays reachable as `kept`."""

    ref: str
    old: str
    new: str
    kept: str = ""

    def __str__(self) -> str:
        kept = f", kept as {self.kept}" if self.kept else ""
        return f"{self.ref} ({_short(self.old)} became {_short(self.new)}{kept})"


def own_refs(moved: Iterable[MovedRef], shared: bool) -> tuple[MovedRef, ...]:
    """doflow's own refs. Where other working trees share them, a run there moves some, and removes none."""
    return tuple(one for one in moved if one.ref.startswith("refs/doflow/") and not (shared and one.new))


class Control:
    """One per fence. Called with the context's lock held."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._data: dict[str, bytes] = {}
        self._held: tuple[Held, ...] = ()
        self._of = (False, "")  # the key of the areas: whether refs are shared, and our branch
        self._dot = git_areas.Dot(0, b"")
        self._refs_before: dict[str, str] = {}
        self._holding = refs.Holding(context.run.name)

    def begin(self) -> None:
        git = self._context.git
        self._context.events.arm()
        found = (git_areas.shared(git.head), git.head.ref)
        if not self._held or found != self._of:
            self._of = found
            self._held = self._areas()
        self._dot = git_areas.inspect_dotgit(git.head)
        self._refs_before = self._holding.renew(git)
        for held in self._held:
            held.take()
        self._forget()
        self._save()
        git.on_commit(self._follow)

    def _areas(self) -> tuple[Held, ...]:
        return tuple(
            Held(area, self._data) for area in git_areas.protected_areas(self._context.head, self._context, *self._of)
        )

    def end(self, clear: bool = True) -> None:
        """Not `clear`: the next start has to revert what a job left; until then our own commits are tracked."""
        if clear:
            self._context.git.on_commit(None)
            self._file.unlink(missing_ok=True)

    def recover(self, keep: Keep, counts: Counts) -> Undone:
        """At a start: the same, from the record of a killed process."""
        told = _load(self._file, self._data)
        if told is None:
            return Undone()
        self._dot = git_areas.inspect_dotgit(self._context.head)
        self._refs_before, self._of = told["refs"], (told["apart"], told["own"])
        self._held = self._areas()
        bases = {row["folder"]: row for row in told["areas"]}
        self._held = tuple(held for held in self._held if held.area.folder in bases)
        for held in self._held:
            held.load(bases[held.area.folder])
        undone = self.check(keep, lambda folder, change: not git_areas.own_ledger(change) and counts(folder, change))
        self._held, self._refs_before = (), {}
        self._file.unlink(missing_ok=True)
        self._context.reload_git()  # the config read until now isn't trustworthy
        return undone

    def check(self, keep: Keep, counts: Counts | None = None) -> Undone:
        """Revert whatever differs; first the files that control git, so that git can be asked about the rest."""
        refused = [".git"] if git_areas.restore_pointer(self._context.git.head, self._dot, keep) else []
        self._part()
        found = [(held, change) for held in self._held for change in git_areas.changes(held)]
        found = [(held, change) for held, change in found if counts is None or counts(held.area.folder, change)]
        steering = [pair for pair in found if git_areas.steers(*pair)]
        refused += [git_areas.shown(held, change) for held, change in steering if not git_areas.cache(held, change)]
        self._restore(steering, keep)
        moved, told = self._moved([pair for pair in found if pair not in steering], keep)
        moved += self._shared(counts) if self._of[0] else []
        if self._context.events.restore(keep):
            refused.append(f"{state_folder.NAME}/runs/{self._context.run.name}/events.jsonl")
        if found or moved or told:
            self._again()
        own = own_refs(moved, shared=self._of[0])
        others = [str(one) for one in moved if one not in own]
        return Undone((*refused, *(one.ref for one in own)), (*others, *told))

    def _part(self) -> None:
        """A working tree was added since: from now on refs are compared one by one with what they were."""
        if not self._of[0] and git_areas.shared(self._context.head):
            before = {held.area.folder: held for held in self._held}
            self._of = (True, self._of[1])
            self._held = tuple(held for held in self._areas() if held.area.folder in before)
            for held in self._held:
                held.part(before[held.area.folder])

    def _again(self) -> None:
        for held in self._held:
            held.take()
        self._alive()

    def _moved(self, found: list[tuple[Held, Change]], keep: Keep) -> tuple[list[MovedRef], list[str]]:
        """Revert refs, HEAD, index and the like; what refs pointed at is kept. Returns the refs, and other messages."""
        if not found:
            return [], []
        git = self._context.git
        names = {change.path.partition("/")[0] for _, change in found}
        index = "index" in names
        staged = _entries(git) if index else b""
        before = _readable(git)
        self._restore(found, keep)
        was = refs.all_refs(git)
        before = was | {"HEAD": ""} if before is None else before
        own = {self._of[1], "HEAD"} if self._of[0] else was.keys() | before.keys()
        moved = self._refs({ref: was.get(ref, "") for ref in own}, {ref: before.get(ref, "") for ref in own})
        told = ["the index (git add, git rm)"] if index and staged != _entries(git) else []
        told += [git_areas.shown(held, change) for held, change in found if not git_areas.quiet(change)]
        return moved, told

    def _refs(self, was: dict[str, str], now: dict[str, str]) -> list[MovedRef]:
        """Each ref that moved; its new place stays reachable."""
        moved = []
        folder = f"refs/doflow/undone/{self._context.run.name}/{time.time_ns()}"
        for ref in sorted(was.keys() | now.keys()):
            old, new = was.get(ref, ""), now.get(ref, "")
            if old == new:
                continue
            self._holding.revive(self._context.git, old)
            kept = refs.keep_commit(self._context.git, f"{folder}/{ref.removeprefix('refs/')}", new)
            moved.append(MovedRef(ref, old, new, kept))
        return moved

    def _shared(self, counts: Counts | None) -> list[MovedRef]:
        """Other working trees share the refs: a branch checked out there stays where it was moved, unless it was deleted;
        the rest is reverted. One by one, by git."""
        git, records = self._context.git, git_areas.records(self._context.run.name)
        was, now = self._refs_before, refs.all_refs(git)
        theirs = git_areas.elsewhere(git.head) - {self._of[1]}
        mine = {ref for ref in was if now.get(ref) != was[ref] and ref != "HEAD"}
        mine = {ref for ref in mine if not ref.startswith(_LET) or f"{ref}/".startswith(records)}
        mine = {ref for ref in mine if ref not in now or (ref not in theirs and self._by_agent(ref, counts))}
        for ref in sorted(mine):
            if not refs.restore_ref(git, ref, was[ref], ref in now) and ref not in now and ref in refs.all_refs(git):
                mine.discard(ref)  # created meanwhile, or only packed: not ours
        return self._refs({ref: was[ref] for ref in mine}, {ref: now.get(ref, "") for ref in mine})

    def _by_agent(self, ref: str, counts: Counts | None) -> bool:
        """After a kill: whether it was moved before the agents were dead, by the mtime of the ref's file; unknown without one."""
        folder = self._context.head.common_dir
        return counts is None or (os.path.lexists(os.path.join(folder, ref)) and counts(folder, Change(ref, "changed")))

    def _restore(self, found: list[tuple[Held, Change]], keep: Keep) -> None:
        for held in self._held:
            mine = tuple(change for owner, change in found if owner is held)
            if mine:
                held.restore(mine, lambda fd, name, path, held=held: keep(fd, name, f"{held.area.shown}/{path}"))  # type: ignore[misc]

    def _alive(self) -> None:
        """After reverting: check that HEAD's commit still exists."""
        git = self._context.git
        if git.head.commit and git.call("cat-file", "-e", "HEAD^{commit}")[0]:
            raise WorldError(
                f"the commit of branch {git.head.branch} is missing in {git.head.git_dir}: an agent removed git objects",
                hint="restore the folder objects/ from a clone (git fetch there), then run the same command",
            )

    def _follow(self) -> None:
        """A commit of ours while an agent is running."""
        ref = self._context.git.head.ref
        paths = ("index", "logs/HEAD", ref, f"logs/{ref}")
        for held in self._held:
            tables = tuple(path for path in held.now().items if path.startswith("reftable/"))
            held.follow(paths + tables)
        self._refs_before[ref] = refs.commit_of(self._context.git.head, ref)
        self._save()

    @property
    def _file(self) -> Path:
        return self._context.state_dir / "control"

    def _save(self) -> None:
        """A line of JSON, then all bytes one after the other."""
        sizes = [(value, len(text)) for value, text in self._data.items()]
        whole = {"format": _FORMAT, "areas": [held.plain() for held in self._held], "sizes": sizes}
        whole |= {"apart": self._of[0], "own": self._of[1], "refs": self._refs_before}
        parts = (json.dumps(whole).encode(), b"\n", *self._data.values())
        atomic_files.write_file(str(self._file), b"".join(parts), 0o600, sync=False)

    def _forget(self) -> None:
        used = frozenset().union(*(held.values() for held in self._held))
        for value in [value for value in self._data if value not in used]:
            del self._data[value]


def _load(path: Path, data: dict[str, bytes]) -> dict[str, Any] | None:
    try:
        head, _, rest = path.read_bytes().partition(b"\n")
        told = json.loads(head)
        if told["format"] != _FORMAT:
            return None
        for value, size in told["sizes"]:
            data[value], rest = rest[:size], rest[size:]
        return dict(told)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _readable(git: Repository) -> dict[str, str] | None:
    """Every ref; None if git no longer recognizes the repository, because of its HEAD."""
    try:
        return refs.all_refs(git)
    except WorldError:
        return None


def _short(value: str) -> str:
    return value.removeprefix("ref: ") if value.startswith("ref: ") else value[:12] or "nothing"


def _entries(git: Repository) -> bytes:
    """What is staged, with its flags; not when git last read a file."""
    return git.call("ls-files", "-s", "-v", "-z")[1]
