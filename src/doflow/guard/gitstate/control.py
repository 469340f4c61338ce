"""What steers git and doflow itself, around agents: git's config, hooks, refs, HEAD and index; doflow's own records.

Held before agents work, compared after, put back without asking git. What an honest agent does with git (add, commit, a
branch, a stash) is undone and told: its files stay, its commits are kept under a ref of ours. What would make git or
doflow do something else (config, hooks, attributes, records) fails the step.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doflow.git import keepalive_refs as hold, refs_every as every, repository as look
from doflow.git.runner import Git
from doflow.guard.gitstate import areas, dotgit
from doflow.guard.gitstate.held_files import Held
from doflow.guard.quarantine import Keep
from doflow.guard.snapshot.entries import Change
from doflow.runs.context import STATE, World
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import dataclass

_FORMAT = 3
_LET = ("refs/doflow/", "refs/remotes/", "refs/bisect/")
Counts = Callable[[str, Change], bool]


@dataclass(frozen=True, slots=True)
class Undone:
    """`refused`: paths whose change fails the step; `told`: sentences about what was put back without that."""

    refused: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class Control:
    """One per fence. Called with the world's guard held."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._data: dict[str, bytes] = {}
        self._held: tuple[Held, ...] = ()
        self._of = (False, "")  # of which areas: do others use the same refs, and which branch is ours
        self._dot = dotgit.Dot(0, b"")
        self._refs_before: dict[str, str] = {}
        self._holding = hold.Holding(world.run.name)

    def begin(self) -> None:
        git = self._world.git
        self._world.ledger.arm()
        found = (areas.shared(git.head), git.head.ref)
        if not self._held or found != self._of:
            self._of = found
            self._held = self._areas()
        self._dot = dotgit.look(git.head)
        self._refs_before = self._holding.renew(git)
        for held in self._held:
            held.take()
        self._forget()
        self._save()
        git.moved = self._follow

    def _areas(self) -> tuple[Held, ...]:
        return tuple(Held(area, self._data) for area in areas.of(self._world.head, self._world, *self._of))

    def end(self, clear: bool = True) -> None:
        self._world.git.moved = None
        if clear:
            self._file.unlink(missing_ok=True)

    def recover(self, keep: Keep, counts: Counts) -> Undone:
        """At a start: the same, from what a killed process has written down."""
        told = _load(self._file, self._data)
        if told is None:
            return Undone()
        self._dot = dotgit.look(self._world.head)
        self._refs_before, self._of = told["refs"], (told["apart"], told["own"])
        self._held = self._areas()
        bases = {row["folder"]: row for row in told["areas"]}
        self._held = tuple(held for held in self._held if held.area.folder in bases)
        for held in self._held:
            held.load(bases[held.area.folder])
        undone = self.check(keep, lambda folder, change: not areas.own_ledger(change) and counts(folder, change))
        self._held, self._refs_before = (), {}
        self._file.unlink(missing_ok=True)
        self._world.renew()  # what the config said until now is not to be trusted
        return undone

    def check(self, keep: Keep, counts: Counts | None = None) -> Undone:
        """Put back whatever differs; first what steers git, so that git may be asked about the rest."""
        refused = [".git"] if dotgit.mend(self._world.git.head, self._dot, keep) else []
        self._part()
        found = [(held, change) for held in self._held for change in areas.changes(held)]
        found = [(held, change) for held, change in found if counts is None or counts(held.area.folder, change)]
        steering = [pair for pair in found if areas.steers(*pair)]
        refused += [areas.shown(held, change) for held, change in steering if not areas.cache(held, change)]
        self._restore(steering, keep)
        told = self._moved([pair for pair in found if pair not in steering], keep)
        told += self._shared(counts) if self._of[0] else []
        if self._world.ledger.mend(keep):
            refused.append(f"{STATE}/runs/{self._world.run.name}/events.jsonl")
        if found or told:
            self._again()
        gone = " became nothing)" if self._of[0] else ""  # a run of this name elsewhere moves them, and removes none
        ours = [line for line in told if line.startswith("refs/doflow/") and line.endswith(gone)]
        return Undone((*refused, *(line.partition(" ")[0] for line in ours)), tuple(x for x in told if x not in ours))

    def _part(self) -> None:
        """A work tree that was added since: from now on refs are compared one by one, against what they were."""
        if not self._of[0] and areas.shared(self._world.head):
            before = {held.area.folder: held for held in self._held}
            self._of = (True, self._of[1])
            self._held = tuple(held for held in self._areas() if held.area.folder in before)
            for held in self._held:
                held.part(before[held.area.folder])

    def _again(self) -> None:
        for held in self._held:
            held.take()
        self._alive()

    def _moved(self, found: list[tuple[Held, Change]], keep: Keep) -> list[str]:
        """Refs, HEAD, index and the like: put back; what refs pointed at is kept. Gives what is worth telling."""
        if not found:
            return []
        git = self._world.git
        names = {change.path.partition("/")[0] for _, change in found}
        index = "index" in names
        staged = _entries(git) if index else b""
        before = every.every(git.head)
        self._restore(found, keep)
        was = every.every(git.head)
        own = {self._of[1], "HEAD"} if self._of[0] else was.keys() | before.keys()
        told = self._refs({ref: was.get(ref, "") for ref in own}, {ref: before.get(ref, "") for ref in own})
        if index and staged != _entries(git):
            told.append("the index (git add, git rm)")
        told += [areas.shown(held, change) for held, change in found if not areas.quiet(change)]
        return told

    def _refs(self, was: dict[str, str], now: dict[str, str]) -> list[str]:
        """Each ref that moved, in words; its new place stays reachable."""
        told = []
        folder = f"refs/doflow/undone/{self._world.run.name}/{time.time_ns()}"
        for ref in sorted(was.keys() | now.keys()):
            old, new = was.get(ref, ""), now.get(ref, "")
            if old == new:
                continue
            self._holding.revive(self._world.git, old)
            kept = hold.keep(self._world.git, f"{folder}/{ref.removeprefix('refs/')}", new)
            told.append(f"{ref} ({_short(old)} became {_short(new)}{f', kept as {kept}' if kept else ''})")
        return told

    def _shared(self, counts: Counts | None) -> list[str]:
        """Other work trees share the refs: what somebody else has checked out stays where they moved it, unless it is
        gone; the rest is put back. One by one, by git."""
        git, records = self._world.git, areas.records(self._world.run.name)
        was, now = self._refs_before, every.every(git.head)
        theirs = areas.elsewhere(git.head) - {self._of[1]}
        mine = {ref for ref in was if now.get(ref) != was[ref] and ref != "HEAD"}
        mine = {ref for ref in mine if not ref.startswith(_LET) or f"{ref}/".startswith(records)}
        mine = {ref for ref in mine if ref not in now or (ref not in theirs and self._by_agent(ref, counts))}
        for ref in sorted(mine):
            if not hold.back(git, ref, was[ref], ref in now) and ref not in now and ref in every.every(git.head):
                mine.discard(ref)  # made meanwhile, or only packed: theirs
        return self._refs({ref: was[ref] for ref in mine}, {ref: now.get(ref, "") for ref in mine})

    def _by_agent(self, ref: str, counts: Counts | None) -> bool:
        """After a kill: moved before the agents were dead, as the ref's own file says; without one nobody knows."""
        folder = self._world.head.common_dir
        return counts is None or (os.path.lexists(os.path.join(folder, ref)) and counts(folder, Change(ref, "changed")))

    def _restore(self, found: list[tuple[Held, Change]], keep: Keep) -> None:
        for held in self._held:
            mine = tuple(change for owner, change in found if owner is held)
            if mine:
                held.restore(mine, lambda fd, name, path, held=held: keep(fd, name, f"{held.area.shown}/{path}"))  # type: ignore[misc]

    def _alive(self) -> None:
        """After a put-back: the commit that HEAD stands at is still to be had."""
        git = self._world.git
        if git.head.commit and git.call("cat-file", "-e", "HEAD^{commit}")[0]:
            raise WorldError(
                f"the commit of branch {git.head.branch} is gone from {git.head.git_dir}: an agent removed git's objects",
                hint="bring the folder objects/ back from a clone (git fetch there), then run the same command",
            )

    def _follow(self) -> None:
        """A commit of ours, while an agent works beside it."""
        ref = self._world.git.head.ref
        paths = ("index", "logs/HEAD", ref, f"logs/{ref}")
        for held in self._held:
            tables = tuple(path for path in held.now().items if path.startswith("reftable/"))
            held.follow(paths + tables)
        self._refs_before[ref] = look.commit_of(self._world.git.head, ref)
        self._save()

    @property
    def _file(self) -> Path:
        return self._world.state_dir / "control"

    def _save(self) -> None:
        """A line of JSON, then all bytes one after the other."""
        sizes = [(value, len(text)) for value, text in self._data.items()]
        whole = {"format": _FORMAT, "areas": [held.plain() for held in self._held], "sizes": sizes}
        whole |= {"apart": self._of[0], "own": self._of[1], "refs": self._refs_before}
        parts = (json.dumps(whole).encode(), b"\n", *self._data.values())
        files.write(str(self._file), b"".join(parts), 0o600, sync=False)

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


def _short(value: str) -> str:
    return value.removeprefix("ref: ") if value.startswith("ref: ") else value[:12] or "nothing"


def _entries(git: Git) -> bytes:
    """What is staged, with its marks; not when git last looked at a file."""
    return git.call("ls-files", "-s", "-v", "-z")[1]
