"""The fence around agents: what the tree was before a job, what it is after, and putting it back.

Jobs that run at the same time share one window: what is outside of all their scopes fails all that are open. What a job
has made is part of the ground of those that go on: nobody else changes it. A window is on disk while it is open, so
that the next start can put back what a killed job left behind.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from doflow import files, snapshot
from doflow.guards import earlier, ends, hearers, leaks, listed
from doflow.guards.control import Control
from doflow.guards.scope import Scope
from doflow.guards.terrain import Terrain
from doflow.guards.window import Window
from doflow.job import Job
from doflow.lock import NAME as LOCK
from doflow.quarantine import Quarantine
from doflow.snapshot import Change, Item, Snapshot
from doflow.world import STATE, World

Look = tuple[tuple[Change, ...], tuple[str, ...]]


class Fence:
    """One per run. Called with the world's guard held."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disk = Window(str(world.state_dir / "window"))
        self._terrain = Terrain(world, self._disk)
        self._control = Control(world)
        self._base: Snapshot | None = None
        self._open: dict[str, Scope] = {}
        self._tainted: dict[str, tuple[str, ...]] = {}
        self._abandoned: list[Scope] = []
        self._seen: dict[str, dict[str, Item | None]] = {}
        self._around: dict[str, tuple[int, ...]] | None = None
        self._work = ""
        self._began: dict[str, str] = {}
        self._own: set[str] = set()
        self._kept: dict[str, Item | None] = {}

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self._world.root / STATE / "quarantine")

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> Scope:
        """`entry`: what the job has returned already. Its files are its own, whoever looks at the tree now."""
        scope = Scope(job, self._world)
        if not self._open:
            self._base = self._terrain.take()
            if not self._work:
                self._terrain.prune()
            self._keep_work(job)
            self._tainted, self._seen, self._kept, self._own, self._began = {}, {}, {}, set(), {}
            self._disk.heard = hearers.within(str(self._world.root))
            self._disk.write(self._base)
            self._around = self._outside()
            self._control.begin()
        if entry is not None:
            self._again(job, entry)
        elif self._open:
            self._put_right(job, "before it began")
        self._tainted.pop(job.name, None)
        self._open[job.name] = scope
        return scope

    def look(self, job: Job) -> Look:
        """The job's own changes so far, and what lies outside of every open scope (put back, kept aside)."""
        assert self._base is not None
        self._steering(job)
        if self._around is not None:
            self._around = self._outside(job)
        now = self._terrain.take(self._base)
        changes = tuple(change for change in snapshot.compare(self._base, now) if not self._ours(change.path))
        changes = self._terrain.counted(changes, self._scopes)
        stray = tuple(change for change in changes if not self._allowed(change.path))
        if stray:
            self._restore(stray, f"{job.name} wrote where it may not", job)
            leaked = tuple(change.path for change in stray if self._leaked(change, job))
            leaks.tell(self._world, leaked, job.step.id) if leaked else None
            self._taint(*(change.path for change in stray if change.path not in leaked))
        mine = tuple(change for change in changes if change not in stray and self._open[job.name].allows(change.path))
        self._list_kept(job, mine)
        theirs = self._theirs(mine) if job.paid or job.step.repair else ()
        if theirs:
            self._restore(theirs, f"{job.name} changed your uncommitted work", job)
            ends.work_kept(self._world, job, tuple(change.path for change in theirs))
        self._seen[job.name] = {path: now.items.get(path) for path in job.makes}
        return tuple(change for change in mine if change not in theirs), self._tainted.get(job.name, ())

    def _list_kept(self, job: Job, mine: tuple[Change, ...]) -> None:
        assert self._base is not None
        scope, world = self._open[job.name], self._world
        for change in mine if scope.lists else ():
            was = self._base.items.get(change.path)
            if change.path not in scope.lists or was is None or was.kind != "file":
                continue
            before = snapshot.read(was, self._terrain.store, self._blob)
            if listed.reworded(world, change.path, before):
                said = listed.read(world, change.path)
                self._restore((change,), f"{job.name} changed the words of its task list", job)
                listed.tick(world, change.path, said)
                listed.told(world, job, change.path)

    def beside(self, job: Job) -> tuple[str, ...]:
        """The jobs at work with this one: what strays may be theirs. Those that are gone were found clean."""
        return tuple(name for name in {**self._tainted, **self._open} if name != job.name)

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Put back what the job changed inside its scope; gives the paths, which are kept in quarantine."""
        mine, _ = self.look(job)
        self._restore(mine, why, job)
        assert self._base is not None
        self._seen[job.name] = {path: self._base.items.get(path) for path in job.makes}
        return tuple(change.path for change in mine)

    def work(self, job: Job) -> str:
        """The commit that holds what was there when the job began."""
        return self._began.get(job.name, self._work)

    def keep(self, job: Job) -> None:
        """What the job has returned is what its next call, should it break off, falls back to: `back`, or after a kill."""
        assert self._base is not None
        now = self._terrain.take(self._base)
        made = self._world.book.returned.get(job.name, {}).get("files", {})
        self._kept |= {path: now.items.get(path) for path in made}
        self._disk.write(earlier.put(self._base, self._kept, now.folders))

    def back(self, job: Job) -> tuple[str, ...]:
        """As the job had returned it before its last call; gives the paths that differed, which are in quarantine."""
        assert self._base is not None
        began, self._base = self._base, earlier.put(self._base, self._kept, frozenset())
        try:
            return self.undo(job, f"left by {job.name}, which was interrupted")
        finally:
            self._base = began

    def leave(self, job: Job) -> None:
        self._open.pop(job.name, None)
        if self._open:
            self._found(job)
        else:
            self._base = None
            self._control.end(not self._abandoned)
            if not self._abandoned:
                self._disk.close()

    def _found(self, job: Job) -> None:
        """Others go on: what the job has made, as its own agent returned it, is ground of theirs. A command that checks it
        may be meant to change it."""
        assert self._base is not None
        made = self._seen.pop(job.name, None)
        if made is None or job.step.check.run:
            now = self._terrain.take(self._base)
            made = {path: now.items.get(path) for path in job.makes}
        self._base = earlier.put(self._base, made, earlier.folders(made))
        self._kept = {path: item for path, item in self._kept.items() if path not in made}
        self._disk.write(earlier.put(self._base, self._kept, earlier.folders(self._kept)))
        self._put_right(job, "after it returned")

    def _put_right(self, job: Job, when: str) -> None:
        """An artifact that is not what it was, while its own agent is not at work: one of those that are has changed it."""
        assert self._base is not None
        world, base = self._world, self._base.items
        if all(world.digest(path) == (base[path].value if path in base else "") for path in job.makes):
            return
        now = self._terrain.take(self._base)
        changes = tuple(change for change in snapshot.compare(self._base, now) if change.path in job.makes)
        if changes:
            self._restore(changes, f"written by a step beside {job.name}, {when}", job)
            self._taint(*(change.path for change in changes))
            ends.not_its_own(world, job, tuple(change.path for change in changes), tuple(self._open), when)

    def aside(self, job: Job, begun: Mapping[str, str]) -> tuple[str, ...]:
        """What a command that failed has made, against what was there at its start: kept aside, never taken for done."""
        keep = self.quarantine.about(f"left by a failed attempt of {job.name}", self._world.run.name, job.name)
        left = [path for path in job.makes if (now := self._world.digest(path)) and now != begun[path]]
        for path in left:
            folder = os.open(os.path.dirname(self._world.root / path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                keep(folder, os.path.basename(path), path)
            finally:
                os.close(folder)
            self._committed_again(path)
        return tuple(left)

    def _committed_again(self, path: str) -> None:
        """The artifact as the step made it the last time it succeeded, if the branch has it."""
        held = self._world.book.artifacts.get(path)
        if held is None:
            return
        from doflow.repo import history

        data = history.show(self._world.git, "HEAD", f"{self._world.prefix}{path}")
        if data is not None and hashlib.sha256(data).hexdigest() == held.digest:
            files.write(str(self._world.root / path), data)

    def abandon(self, job: Job) -> None:
        """A job broke off and its traces could not be undone: the window stays on disk for the next start."""
        scope = self._open.pop(job.name, None)
        self._abandoned += [scope] if scope else []

    def recover(self, jobs: Mapping[str, Scope], whole: frozenset[str]) -> ends.Left:
        """At a start: put back what was written while jobs worked that were killed; `jobs` are those to be done again,
        `whole` the paths of those that had returned.

        What was written after the agents were dead is a person's: it stays, and is named.
        """
        base = self._disk.read()
        if base is None:
            self._control.end()
            return ends.Left()
        dead = ends.death(self._world.state_dir, base.taken)
        keep = self.quarantine.about("left behind by a killed step", self._world.run.name)
        undone = self._control.recover(keep, lambda folder, change: not ends.later(folder, change, dead))
        self._base, root = base, str(self._world.root)
        now = self._terrain.take(base)
        changes = tuple(change for change in snapshot.compare(base, now) if not self._done(change.path, whole))
        since = tuple(c for c in changes if ends.later(root, c, dead) or self._terrain.committed(c.path, base, now))
        left = tuple(change for change in changes if change not in since)
        mine = tuple(change for change in left if any(scope.allows(change.path) for scope in jobs.values()))
        stray = self._terrain.counted(tuple(change for change in left if change not in mine), tuple(jobs.values()))
        self._restore((*mine, *stray), "left behind by a killed step", None)
        self._base = None
        self._disk.close()
        if any(change.path == self._lock for change in stray):
            self._world.forget()
        since = self._terrain.counted(since, tuple(jobs.values()))
        back = tuple(change.path for change in (*mine, *stray))
        return ends.Left((*back, *undone.refused), undone.told, tuple(change.path for change in since))

    def foresee(self, whole: frozenset[str], paths: tuple[str, ...]) -> dict[str, bytes | None]:
        """What `recover` would make of these paths, where they differ: their bytes then (None = gone)."""
        base = self._disk.read()
        if base is None:
            return {}
        dead, root = ends.death(self._world.state_dir, base.taken), str(self._world.root)
        found: dict[str, bytes | None] = {}
        for path in paths:
            if path not in whole and not ends.later(root, Change(path, "changed"), dead):
                was = base.items.get(path)
                found |= {} if ends.same(root, path, was) else {path: self._was(was)}
        return found

    def _was(self, was: Item | None) -> bytes | None:
        return None if was is None else snapshot.read(was, self._terrain.store, self._blob)

    def _outside(self, job: Job | None = None) -> dict[str, tuple[int, ...]] | None:
        """The rest of the repository, where the project is but a folder of it."""
        if not self._world.prefix:
            return None
        from doflow.guards import around

        before = self._around
        return around.look(self._world) if job is None or before is None else around.tell(self._world, job, before)

    def _steering(self, job: Job) -> None:
        keep = self.quarantine.about(f"{job.name} changed what steers git or doflow", self._world.run.name, job.name)
        undone = self._control.check(keep)
        self._taint(*undone.refused)
        if undone.told:
            ends.git_undone(self._world, job, undone.told)

    def _taint(self, *paths: str) -> None:
        for name in self._open if paths else ():
            self._tainted[name] = tuple(dict.fromkeys((*self._tainted.get(name, ()), *paths)))

    @property
    def _scopes(self) -> tuple[Scope, ...]:
        """Of the jobs that are at work, and of those whose traces could not be undone."""
        return (*self._open.values(), *self._abandoned)

    def _allowed(self, path: str) -> bool:
        return any(scope.allows(path) for scope in self._scopes) and not self._terrain.foreign(path)

    def _leaked(self, change: Change, job: Job) -> bool:
        """Code in the run's folder, from a step that is to build nothing: a warning is enough."""
        if change.kind != "added" or job.phase or any(scope.protects(change.path) for scope in self._scopes):
            return False
        return leaks.is_leak(self._world, change.path)

    def _theirs(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Where a job may write everything: what a person had not committed when it began is not its to change."""
        assert self._base is not None
        folder = f"{self._world.run.dir}/"
        old = [change for change in changes if change.path in self._base.items and not change.path.startswith(folder)]
        old = [change for change in old if not any(scope.names(change.path) for scope in self._scopes)]
        old = [change for change in old if change.path not in self._own]
        if not old:
            return ()
        from doflow.repo import wip

        known = wip.names(self._world.git, self._work)
        return tuple(change for change in old if f"{self._world.prefix}{change.path}" in known)

    def _again(self, job: Job, entry: Mapping[str, Any]) -> None:
        assert self._base is not None
        world, made = self._world, entry.get("files", {})
        self._began[job.name] = entry.get("work", "")
        self._own.update(made)
        self._base = earlier.before(world.git, self._base, made, entry.get("work", ""), self._terrain.in_git())

    def _keep_work(self, job: Job) -> None:
        """The person's uncommitted work, under a ref of ours: whatever an agent does to the tree, it is there."""
        from doflow.repo import wip

        name = f"{self._world.run.name}/{job.name.replace(':', '-')}"
        self._work = wip.wip(self._world.git, name, self._terrain.clean())

    def _ours(self, path: str) -> bool:
        """The lock as we wrote it, when a job beside this one was done; the file of a pipeline likewise; our own words."""
        world = self._world
        if path in self._disk.heard:
            return not any(scope.protects(path) for scope in self._scopes)
        if path in world.own:
            return world.digest(path) == world.own[path]
        return path == self._lock and world.digest(path) == world.lock_digest != ""

    @property
    def _lock(self) -> str:
        return f"{self._world.run.dir}/{LOCK}"

    def _done(self, path: str, whole: frozenset[str]) -> bool:
        """Made by a job that had returned, or the lock as it is committed, or what the killed process itself had said."""
        if path != self._lock:
            return path in whole or path in self._disk.heard
        from doflow.repo import history

        data = history.show(self._world.git, "HEAD", f"{self._world.prefix}{path}") if self._world.head.commit else None
        return data is not None and hashlib.sha256(data).hexdigest() == self._world.digest(path)

    def _blob(self, blob: str) -> bytes:
        from doflow.repo import history

        return history.blob(self._world.git, blob)

    def _restore(self, changes: tuple[Change, ...], why: str, job: Job | None) -> None:
        if not changes:
            return
        assert self._base is not None
        keep = self.quarantine.about(why, self._world.run.name, job.name if job else "")
        snapshot.restore(str(self._world.root), self._base, changes, self._terrain.store, self._blob, keep)
        files.syncfs(os.fspath(self._world.root))
