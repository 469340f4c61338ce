"""The project's files as the fence sees them: our own walk, without what git ignored when the run began."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.guard.fence.scope import Scope
from doflow.guard.fence.window_file import Window
from doflow.guard.snapshot import walk as snapshot
from doflow.guard.snapshot.entries import Change, Snapshot
from doflow.runs.context import STATE, World
from doflow.runs.state import fingerprint as keys
from doflow.util.globs import ALWAYS

_LINK = "160000"  # git's mode of a submodule


class Terrain:
    """Remembers what it saw, so that only what was touched is read again."""

    def __init__(self, world: World, disk: Window) -> None:
        self._world = world
        self._disk = disk
        self._store = ""
        self._seen: Snapshot | None = None
        self._ignored: tuple[str, ...] | None = None
        self._blobs: tuple[str, Mapping[str, tuple[str, str]]] = ("", {})
        self._fresh: frozenset[str] = frozenset()

    def take(self, before: Snapshot | None = None) -> Snapshot:
        if self._ignored is None:
            from doflow.git import history

            self._ignored = history.ignored(self._world.git)
        known = self.in_git()
        last = before or self._seen or self._remembered(known)
        if last is not None and self._fresh:  # committed since: git holds their bytes now
            kept = {path: item for path, item in last.items.items() if path not in self._fresh}
            last = Snapshot(last.taken, kept, last.folders)
        self._fresh = frozenset()
        self._seen = snapshot.take(str(self._world.root), self._skipped(), self.store, known, last)
        return self._seen

    def _remembered(self, known: Mapping[str, tuple[str, str]]) -> Snapshot | None:
        """What an earlier process saw, as far as git (or nobody) holds the same bytes under the same name still."""
        last, self._fresh = self._disk.last(), frozenset()
        if last is None:
            return None
        kept = {path: item for path, item in last.items.items() if known.get(path, ("", ""))[1] == item.blob}
        return Snapshot(last.taken, kept, last.folders)

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
        from doflow.git import history, repository as look

        head = look.find(str(self._world.root))
        base, known = self._blobs
        if head.commit != base:
            changed = history.blobs(self._world.git, head.commit, base)
            gone = {path for path, (mode, _) in changed.items() if not mode}
            self._fresh |= changed.keys()
            self._blobs = (head.commit, {path: it for path, it in {**known, **changed}.items() if path not in gone})
        return self._blobs[1]

    def clean(self) -> bool:
        """By our own walk: every file is what HEAD holds, byte by byte and mode by mode, and nothing is there besides but
        what git ignores. (A filter that turns line ends makes files differ: then git is asked.)"""
        assert self._seen is not None
        known, seen = self.in_git(), self._seen.items
        tracked = 0
        for path, item in seen.items():
            mode, blob = known.get(path, ("", ""))
            if not mode and not self._is_ignored(path):
                return False
            if mode and (item.blob != blob or (mode == "100755") != bool(item.mode & 0o100)):
                return False
            tracked += bool(mode)
        return tracked == len(known)

    def _is_ignored(self, path: str) -> bool:
        return any(path == name or (name.endswith("/") and path.startswith(name)) for name in self._ignored or ())

    def foreign(self, path: str) -> bool:
        """Inside of a submodule: it has a history of its own, which no step of ours writes."""
        known = self.in_git()
        parts = path.split("/")
        return any(known.get("/".join(parts[:depth]), ("",))[0] == _LINK for depth in range(1, len(parts) + 1))

    def committed(self, path: str, before: Snapshot, now: Snapshot) -> bool:
        """Was it as git held it, and is it as git holds it now? Then whoever committed it meanwhile made the difference."""
        old, new = before.items.get(path), now.items.get(path)
        if old is not None and not old.blob:
            return False
        return bool(new.blob) if new is not None else path not in self.in_git()

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
        from doflow.git import history

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
