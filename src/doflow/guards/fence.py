"""The fence around agents: what the tree was before a job, what it is after, and putting it back.

Jobs that run at the same time share one window: what is outside of all their scopes fails them all. A window is on
disk while it is open, so that the next start can put back what a killed job left behind.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from doflow import files, snapshot
from doflow.guards.scope import Scope
from doflow.job import Job
from doflow.lock import NAME as LOCK
from doflow.quarantine import Quarantine
from doflow.snapshot import Change, Snapshot
from doflow.world import STATE, World


class Fence:
    """One per run. Called with the world's guard held."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = world.root / STATE / "store"
        self._base: Snapshot | None = None
        self._seen: Snapshot | None = None
        self._open: dict[str, Scope] = {}
        self._window: list[Scope] = []
        self._tainted: tuple[str, ...] = ()
        self._abandoned = False
        self._ignored: tuple[str, ...] | None = None
        self._blobs: tuple[str, Mapping[str, tuple[str, str]]] = ("", {})

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self._world.root / STATE / "quarantine")

    @property
    def _file(self) -> Path:
        return self._world.state_dir / "window"

    def enter(self, job: Job) -> None:
        scope = Scope(job, self._world)
        if not self._open:
            self._keep_work(job)
            self._base = self._take(self._seen)
            self._window = []
            self._tainted = ()
            self._base.save(self._file)
        self._open[job.name] = scope
        self._window.append(scope)

    def look(self, job: Job) -> tuple[tuple[Change, ...], tuple[str, ...]]:
        """The job's own changes so far, and what lies outside of every open scope (put back, kept aside)."""
        assert self._base is not None
        now = self._take(self._base)
        changes = tuple(change for change in snapshot.compare(self._base, now) if not self._ours(change.path))
        changes = self._counted(changes)
        stray = tuple(change for change in changes if not any(scope.allows(change.path) for scope in self._window))
        if stray:
            self._restore(stray, f"{job.name} wrote where it may not", job)
            self._tainted = (*self._tainted, *(change.path for change in stray))
        mine = tuple(change for change in changes if self._open[job.name].allows(change.path))
        return mine, self._tainted

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Put back what the job changed inside its scope; gives the paths, which are kept in quarantine."""
        mine, _ = self.look(job)
        self._restore(mine, why, job)
        return tuple(change.path for change in mine)

    def leave(self, job: Job) -> None:
        self._open.pop(job.name, None)
        if not self._open:
            self._base = None
            if not self._abandoned:
                self._file.unlink(missing_ok=True)

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
        self._abandoned = True
        self._open.pop(job.name, None)

    def recover(self, jobs: Mapping[str, Scope]) -> tuple[str, ...]:
        """At a start: put back what jobs that were killed in flight had changed inside their scopes."""
        base = snapshot.load(self._file)
        if base is None:
            return ()
        self._base = base
        changes = snapshot.compare(base, self._take(base))
        left = tuple(
            change for change in changes
            if any(scope.allows(change.path) for scope in jobs.values())
        )  # fmt: skip
        self._restore(left, "left behind by a killed step", None)
        self._base = None
        self._file.unlink(missing_ok=True)
        return tuple(change.path for change in left)

    def discard(self) -> None:
        self._file.unlink(missing_ok=True)

    def _keep_work(self, job: Job) -> None:
        """The person's uncommitted work, under a ref of ours: whatever an agent does to the tree, it is there."""
        from doflow.repo import wip

        wip.wip(self._world.git, f"{self._world.run.name}/{job.name.replace(':', '-')}")

    def _ours(self, path: str) -> bool:
        """The lock as we wrote it, when a job beside this one was done; the file of a pipeline likewise."""
        world = self._world
        if path in world.own:
            return world.digest(path) == world.own[path]
        return path == f"{world.run.dir}/{LOCK}" and world.digest(path) == world.lock_digest != ""

    def _counted(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Without new files that git ignores; a job that may not change the rules cannot hide anything by them."""
        rules = [change.path for change in changes if os.path.basename(change.path) == ".gitignore"]
        if not all(any(scope.allows(path) for scope in self._window) for path in rules):
            return changes
        makes = {path for scope in self._window for path in scope.makes}
        new = [change.path for change in changes if change.kind == "added" and change.path not in makes]
        new = [path for path in new if not any(scope.protects(path) for scope in self._window)]
        if not new:
            return changes
        from doflow.repo import history

        passed = history.ignoring(self._world.git, new)
        return tuple(change for change in changes if change.path not in passed)

    def _take(self, before: Snapshot | None) -> Snapshot:
        if self._ignored is None:
            from doflow.repo import history

            self._ignored = history.ignored(self._world.git)
        self._seen = snapshot.take(str(self._world.root), self._skipped(), self._store, self._in_git(), before)
        return self._seen

    def _skipped(self) -> tuple[str, ...]:
        """What git ignores is passed over, but never the run's own folder or what is protected."""
        protect = (*self._world.settings.protect, *self._world.flow.protect)
        return (f"{STATE}/", *(name for name in self._ignored or () if not self._watched(name, protect)))

    def _watched(self, name: str, protect: tuple[str, ...]) -> bool:
        folder = f"{self._world.run.dir}/"
        if folder.startswith(name) or name.startswith(folder):
            return True
        below = [glob.lstrip("/") for glob in protect if "/" in glob.rstrip("/")]
        return snapshot.matches(protect, name.rstrip("/")) or any(glob.startswith(name) for glob in below)

    def _in_git(self) -> Mapping[str, tuple[str, str]]:
        from doflow.repo import history, look

        head = look.find(str(self._world.root))
        if head.commit != self._blobs[0]:
            self._blobs = (head.commit, history.blobs(self._world.git, head.commit))
        return self._blobs[1]

    def _restore(self, changes: tuple[Change, ...], why: str, job: Job | None) -> None:
        if not changes:
            return
        from doflow.repo import history

        assert self._base is not None
        keep = self.quarantine.about(why, self._world.run.name, job.name if job else "")
        snapshot.restore(
            str(self._world.root), self._base, changes, self._store,
            lambda blob: history.blob(self._world.git, blob), keep,
        )  # fmt: skip
        files.syncfs(os.fspath(self._world.root))
