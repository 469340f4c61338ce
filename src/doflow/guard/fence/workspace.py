"""The ground that a fence stands on: the tree as it is, as it was, on disk, in git; and putting paths of it back."""

from __future__ import annotations

import hashlib
import os

from doflow.guard.fence.project_files import Terrain
from doflow.guard.fence.scope import Scope
from doflow.guard.fence.window_file import Window
from doflow.guard.gitstate.control import Control
from doflow.guard.quarantine import Quarantine
from doflow.guard.snapshot import walk as snapshot
from doflow.guard.snapshot.entries import Change, Item, Snapshot
from doflow.runs.context import STATE, World
from doflow.runs.job import Job
from doflow.runs.state.lockfile import NAME as LOCK
from doflow.util import atomic_files as files


class Ground:
    """One per fence."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = Window(str(world.state_dir / "window"))
        self.terrain = Terrain(world, self.disk)
        self.control = Control(world)
        self.lock = f"{world.run.dir}/{LOCK}"

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.world.root / STATE / "quarantine")

    def restore(self, base: Snapshot, changes: tuple[Change, ...], why: str, job: Job | None) -> None:
        """As `base` has them; what they are now is kept aside."""
        if not changes:
            return
        keep = self.quarantine.about(why, self.world.run.name, job.name if job else "")
        snapshot.restore(str(self.world.root), base, changes, self.terrain.store, self._blob, keep)
        files.syncfs(os.fspath(self.world.root))

    def read(self, was: Item) -> bytes:
        return snapshot.read(was, self.terrain.store, self._blob)

    def ours(self, path: str, scopes: tuple[Scope, ...]) -> bool:
        """The lock as we wrote it, when a job beside this one was done; the file of a pipeline likewise; our own words."""
        world = self.world
        if path in self.disk.heard:
            return not any(scope.protects(path) for scope in scopes)
        if path in world.own:
            return world.digest(path) == world.own[path]
        return path == self.lock and world.digest(path) == world.lock_digest != ""

    def done(self, path: str, whole: frozenset[str]) -> bool:
        """Made by a job that had returned, or the lock as it is committed, or what the killed process itself had said."""
        if path != self.lock:
            return path in whole or path in self.disk.heard
        from doflow.git import history

        world = self.world
        data = history.show(world.git, "HEAD", f"{world.prefix}{path}") if world.head.commit else None
        return data is not None and hashlib.sha256(data).hexdigest() == world.digest(path)

    def work_ref(self, name: str) -> str:
        """Where the person's uncommitted work is kept while a job is at work."""
        return f"{self.world.run.name}/{name.replace(':', '-')}"

    def _blob(self, blob: str) -> bytes:
        from doflow.git import history

        return history.blob(self.world.git, blob)
