"""The baseline of a fence: the working tree now and before, its record on disk, the files in git, and reverting paths."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from doflow.git import head_reader, history
from doflow.guard import snapshot_entries, snapshot_walk
from doflow.guard.fence.scope import Scope
from doflow.guard.git_control import Control
from doflow.guard.quarantine import Quarantine
from doflow.guard.snapshot_entries import Change, Item, Snapshot
from doflow.runs import fingerprint
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.lockfile import NAME as LOCK
from doflow.util import atomic_files, state_folder
from doflow.util.errors import WorldError
from doflow.util.globs import ALWAYS


class Ground:
    """One per fence."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.disk = Window(str(context.state_dir / "window"))
        self.terrain = Terrain(context, self.disk)
        self.control = Control(context)
        self.lock = f"{context.run.dir}/{LOCK}"

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.context.root / state_folder.QUARANTINE)

    def restore(self, base: Snapshot, changes: tuple[Change, ...], why: str, job: Job | None) -> None:
        """Revert these paths to `base`; their current content goes to quarantine."""
        if not changes:
            return
        keep = self.quarantine.about(why, self.context.run.name, job.name if job else "")
        snapshot_walk.restore(str(self.context.root), base, changes, self.terrain.store, self._blob, keep)
        atomic_files.syncfs(os.fspath(self.context.root))

    def read(self, was: Item) -> bytes:
        return snapshot_walk.read_item(was, self.terrain.store, self._blob)

    def ours(self, path: str, scopes: tuple[Scope, ...]) -> bool:
        """Paths that doflow itself writes: the lock file when a parallel job finishes, the file of a pipeline, our own output."""
        context = self.context
        if path in self.disk.heard:
            return not any(scope.protects(path) for scope in scopes)
        if path in context.own:
            return context.files.digest(path) == context.own[path]
        return path == self.lock and context.files.digest(path) == context.lock_digest != ""

    def done(self, path: str, whole: frozenset[str]) -> bool:
        """Made by a job that had returned, or the lock file as committed, or output of the killed process itself."""
        if path != self.lock:
            return path in whole or path in self.disk.heard

        context = self.context
        data = history.file_at(context.git, "HEAD", f"{context.prefix}{path}") if context.head.commit else None
        return data is not None and hashlib.sha256(data).hexdigest() == context.files.digest(path)

    def work_ref(self, name: str) -> str:
        """The ref under which the user's uncommitted work is kept while a job runs."""
        return f"{self.context.run.name}/{name.replace(':', '-')}"

    def _blob(self, blob: str) -> bytes:
        return history.read_blob(self.context.git, blob)


_LINK = "160000"  # git's mode of a submodule


class Terrain:
    """Remembers what it read, so that only touched files are read again."""

    def __init__(self, context: RunContext, disk: Window) -> None:
        self._context = context
        self._disk = disk
        self._store = ""
        self._seen: Snapshot | None = None
        self._ignored: tuple[str, ...] | None = None
        self._blobs: tuple[str, Mapping[str, tuple[str, str]]] = ("", {})
        self._fresh: frozenset[str] = frozenset()

    def take(self, before: Snapshot | None = None) -> Snapshot:
        if self._ignored is None:
            self._ignored = history.ignored_files(self._context.git)
        known = self.in_git()
        last = before or self._seen or self._remembered(known)
        if last is not None and self._fresh:  # committed since: git holds their bytes now
            kept = {path: item for path, item in last.items.items() if path not in self._fresh}
            last = Snapshot(last.taken, kept, last.folders)
        self._fresh = frozenset()
        self._seen = snapshot_walk.take_snapshot(str(self._context.root), self._skipped(), self.store, known, last)
        return self._seen

    def _remembered(self, known: Mapping[str, tuple[str, str]]) -> Snapshot | None:
        """What an earlier process saw, where git still holds the same bytes under the same name, or holds none."""
        last, self._fresh = self._disk.last(), frozenset()
        if last is None:
            return None
        kept = {path: item for path, item in last.items.items() if known.get(path, ("", ""))[1] == item.blob}
        return Snapshot(last.taken, kept, last.folders)

    @property
    def store(self) -> str:
        """The store is next to git's objects, not in `.doflow/`, which `git clean -fdx` removes."""
        if not self._store:
            own = f"-{fingerprint.short_hash(self._context.prefix, 8)}" if self._context.prefix else ""
            self._store = os.path.join(self._context.head.git_dir, f"doflow-store{own}")
        return self._store

    def prune(self) -> None:
        """Remove what the current snapshot does not need."""
        used = {item.value for item in self._seen.items.values()} if self._seen else set()
        for place, _, names in os.walk(self.store):
            for name in names:
                if os.path.basename(place) + name not in used:
                    os.unlink(os.path.join(place, name))

    def in_git(self) -> Mapping[str, tuple[str, str]]:
        """What HEAD holds: path -> mode, blob id."""
        head = head_reader.find_head(str(self._context.root))
        base, known = self._blobs
        if head.commit != base:
            changed = history.list_blobs(self._context.git, head.commit, base)
            gone = {path for path, (mode, _) in changed.items() if not mode}
            self._fresh |= changed.keys()
            self._blobs = (head.commit, {path: it for path, it in {**known, **changed}.items() if path not in gone})
        return self._blobs[1]

    def clean(self) -> bool:
        """By our own walk: every file equals HEAD's, byte by byte and mode by mode, and there is nothing else except what git
        ignores. (A filter that converts line endings makes files differ: then git is asked.)"""
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
        """Inside a submodule: it has its own history, which no step writes."""
        known = self.in_git()
        parts = path.split("/")
        return any(known.get("/".join(parts[:depth]), ("",))[0] == _LINK for depth in range(1, len(parts) + 1))

    def nested(self, path: str) -> bool:
        """Inside a nested repository that isn't a submodule: our commits cannot contain its files."""
        parts = path.split("/")
        above = (os.path.join(self._context.root, *parts[:depth], ".git") for depth in range(1, len(parts)))
        return any(map(os.path.lexists, above))

    def committed(self, path: str, before: Snapshot, now: Snapshot) -> bool:
        """Did it equal git's version before, and does it now? Then the difference comes from a commit made meanwhile."""
        old, new = before.items.get(path), now.items.get(path)
        if old is not None and not old.blob:
            return False
        return bool(new.blob) if new is not None else path not in self.in_git()

    def counted(self, changes: tuple[Change, ...], window: tuple[Scope, ...]) -> tuple[Change, ...]:
        """Without new files that git ignores; a job that may not change the ignore rules cannot hide anything with them."""
        rules = [change.path for change in changes if os.path.basename(change.path) == ".gitignore"]
        if not all(any(scope.allows(path) for scope in window) for path in rules):
            return changes
        makes = {path for scope in window for path in scope.makes}
        new = [change.path for change in changes if change.kind == "added" and change.path not in makes]
        new = [path for path in new if not any(scope.protects(path) for scope in window)]
        if not new:
            return changes

        passed = history.ignored_among(self._context.git, new)
        return tuple(change for change in changes if change.path not in passed)

    def _skipped(self) -> tuple[str, ...]:
        """Ignored files are skipped, except in the run's own folder and protected ones."""
        protect = (*ALWAYS, *self._context.settings.protect, *self._context.flow.protect)
        return (f"{state_folder.NAME}/", *(name for name in self._ignored or () if not self._watched(name, protect)))

    def _watched(self, name: str, protect: tuple[str, ...]) -> bool:
        folder = f"{self._context.run.dir}/"
        if folder.startswith(name) or name.startswith(folder):
            return True
        below = [glob.lstrip("/") for glob in protect if "/" in glob.rstrip("/")]
        return snapshot_walk.matches(protect, name.rstrip("/")) or any(glob.startswith(name) for glob in below)


class Window:
    """`window` exists while agents run; `window.base` is the snapshot it is compared with."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.commands: tuple[str, ...] = ()
        self.heard: frozenset[str] = frozenset()  # files that received doflow's own output then
        self._whole: Snapshot | None = None
        self._name = ""

    def write(self, now: Snapshot, commands: tuple[str, ...] = ()) -> None:
        """Not synced: a killed process loses nothing by it. `commands`: the jobs that run a command while no agent runs."""
        self.commands = commands
        if self._whole is None or len(now.items) > 2 * len(self._whole.items):
            self._whole, self._name = now, os.urandom(8).hex()
            rows = [_row(path, item) for path, item in now.items.items()]
            whole = {"name": self._name, "taken": now.taken, "items": rows, "folders": sorted(now.folders)}
            self._put(f"{self.path}.base", whole)
        old = self._whole
        rows = [_row(path, item) for path, item in now.items.items() if old.items.get(path) is not item]
        told = {"name": self._name, "taken": now.taken, "items": rows}
        told |= {"gone": sorted(old.items.keys() - now.items.keys())}
        told |= {"more": sorted(now.folders - old.folders), "less": sorted(old.folders - now.folders)}
        told |= {"commands": commands, "heard": sorted(self.heard)}
        self._put(self.path, told)

    def read(self) -> Snapshot | None:
        """None if no agent was running."""
        if not os.path.exists(self.path):
            return None
        try:
            told, whole = self._get(self.path), self._get(f"{self.path}.base")
            if told["name"] != whole["name"]:
                raise ValueError("its two parts do not belong together")
            items = {row[0]: snapshot_entries.item(row) for row in whole["items"]}
            items |= {row[0]: snapshot_entries.item(row) for row in told["items"]}
            for path in told["gone"]:
                items.pop(path, None)
            self.commands = tuple(map(str, told.get("commands", ())))
            self.heard = frozenset(told.get("heard", ()))
            folders = (frozenset(whole["folders"]) | frozenset(told["more"])) - frozenset(told["less"])
            return Snapshot(int(told["taken"]), items, folders)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorldError(
                f"cannot read the snapshot {self.path}: {error}",
                hint=f"the changes of the interrupted step were not reverted; check git status, then: rm '{self.path}'",
            ) from error

    def last(self) -> Snapshot | None:
        """What an earlier process saw: a file with the same stat needn't be read again."""
        try:
            whole = self._get(f"{self.path}.base")
            items = {row[0]: snapshot_entries.item(row) for row in whole["items"]}
            return Snapshot(int(whole["taken"]), items, frozenset(whole["folders"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def close(self) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def _put(self, path: str, told: dict[str, object]) -> None:
        atomic_files.write_file(path, json.dumps(told, separators=(",", ":")).encode(), mode=0o600, sync=False)

    def _get(self, path: str) -> dict[str, Any]:
        with open(path, "rb") as stream:
            told = json.load(stream)
        if not isinstance(told, dict):
            raise ValueError("not a snapshot")
        return told


def _row(path: str, item: Item) -> tuple[object, ...]:
    return (path, item.kind, item.mode, item.value, item.blob, item.stat)
