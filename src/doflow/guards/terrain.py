"""The project's files as the fence sees them: our own walk, without what git ignored when the run began."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow import keys, snapshot
from doflow.contents import Change, Snapshot
from doflow.guards.scope import ALWAYS, Scope
from doflow.world import STATE, World

_LINK = "160000"  # git's mode of a submodule


class Terrain:
    """Remembers what it saw, so that only what was touched is read again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = ""
        self._seen: Snapshot | None = None
        self._ignored: tuple[str, ...] | None = None
        self._blobs: tuple[str, Mapping[str, tuple[str, str]]] = ("", {})

    def take(self, before: Snapshot | None = None) -> Snapshot:
        if self._ignored is None:
            from doflow.repo import history

            self._ignored = history.ignored(self._world.git)
        self._seen = snapshot.take(
            str(self._world.root), self._skipped(), self.store, self.in_git(), before or self._seen
        )
        return self._seen

    @property
    def store(self) -> str:
        """Beside git's objects, not in `.doflow/`: `git clean -fdx` takes that away. Emptied of what is of no use."""
        if not self._store:
            own = f"-{keys.short(self._world.prefix, 8)}" if self._world.prefix else ""
            self._store = os.path.join(self._world.head.git_dir, f"doflow-store{own}")
        return self._store

    def prune(self) -> None:
        """Only what the snapshot at hand needs is of any use."""
        used = {item.value for item in self._seen.items.values()} if self._seen else set()
        for place, _, names in os.walk(self.store):
            for name in names:
                if os.path.basename(place) + name not in used:
                    os.unlink(os.path.join(place, name))

    def in_git(self) -> Mapping[str, tuple[str, str]]:
        """What HEAD holds: path -> mode, blob id."""
        from doflow.repo import history, look

        head = look.find(str(self._world.root))
        if head.commit != self._blobs[0]:
            self._blobs = (head.commit, history.blobs(self._world.git, head.commit))
        return self._blobs[1]

    def foreign(self, path: str) -> bool:
        """Inside of a submodule: it has a history of its own, which no step of ours writes."""
        known = self.in_git()
        parts = path.split("/")
        return any(known.get("/".join(parts[:depth]), ("",))[0] == _LINK for depth in range(1, len(parts) + 1))

    def counted(self, changes: tuple[Change, ...], window: tuple[Scope, ...]) -> tuple[Change, ...]:
        """Without new files that git ignores; a job that may not change the rules cannot hide anything by them."""
        rules = [change.path for change in changes if os.path.basename(change.path) == ".gitignore"]
        if not all(any(scope.allows(path) for scope in window) for path in rules):
            return changes
        makes = {path for scope in window for path in scope.makes}
        new = [change.path for change in changes if change.kind == "added" and change.path not in makes]
        new = [path for path in new if not any(scope.protects(path) for scope in window)]
        if not new:
            return changes
        from doflow.repo import history

        passed = history.ignoring(self._world.git, new)
        return tuple(change for change in changes if change.path not in passed)

    def _skipped(self) -> tuple[str, ...]:
        """What git ignores is passed over, but never the run's own folder or what is protected."""
        protect = (*ALWAYS, *self._world.settings.protect, *self._world.flow.protect)
        return (f"{STATE}/", *(name for name in self._ignored or () if not self._watched(name, protect)))

    def _watched(self, name: str, protect: tuple[str, ...]) -> bool:
        folder = f"{self._world.run.dir}/"
        if folder.startswith(name) or name.startswith(folder):
            return True
        below = [glob.lstrip("/") for glob in protect if "/" in glob.rstrip("/")]
        return snapshot.matches(protect, name.rstrip("/")) or any(glob.startswith(name) for glob in below)
