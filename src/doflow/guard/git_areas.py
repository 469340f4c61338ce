"""Which files of git and of doflow itself are protected while agents run, and what a change of each means."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from doflow.git import head_reader
from doflow.git.head import Head
from doflow.guard import snapshot_entries, snapshot_walk
from doflow.guard.quarantine import Keep
from doflow.guard.snapshot_entries import Change, Item, Snapshot
from doflow.runs import event_log
from doflow.runs.context import RunContext
from doflow.util import atomic_files, state_folder
from doflow.util.errors import WorldError

_PASSED = ("doflow-", "worktrees", "lfs", "annex", "fsmonitor--daemon", "gc.pid", "gc.log")
_STEERS = ("config", "hooks/", "info/", "commondir", "gitdir", "alternates", "http-alternates")
_QUIET = (
    *("index", "logs/", "packed-refs", "HEAD", "refs/", "reftable/", "info/", "ORIG_HEAD", "FETCH_HEAD"),
    "COMMIT_EDITMSG",
)
_REFS = ("refs", "packed-refs", "reftable", "logs/refs")
_CACHES = ("flows", "stamps/")


def protected_areas(head: Head, context: RunContext, apart: bool, own: str) -> tuple[Area, ...]:
    """`apart`: of the refs only the run's `own` is protected as a file; other working trees use the rest too."""
    counts = _of_shared(own) if apart else _of_git
    found = [Area(folder, ".git", counts) for folder in dict.fromkeys((head.git_dir, head.common_dir))]
    found.append(Area(os.path.join(head.common_dir, "objects", "info"), ".git/objects/info", _of_objects))
    return (
        *found,
        Area(
            str(context.root / state_folder.NAME), state_folder.NAME, _of_state(str(context.root / state_folder.NAME))
        ),
    )


def _of_git(path: str) -> bool:
    return not path.startswith(_PASSED) and path.rpartition("/")[2] != "objects"


def _of_shared(ref: str) -> Callable[[str], bool]:
    own = (f"{ref}/", f"logs/{ref}/")

    def counts(path: str) -> bool:
        if not path.startswith(_REFS):
            return _of_git(path)
        return f"{path}/".startswith(own) or any(name.startswith(f"{path}/") for name in own)

    return counts


def records(run: str) -> tuple[str, ...]:
    """Prefixes of the refs that doflow keeps for this run."""
    return tuple(f"refs/doflow/{kind}/{run}/" for kind in ("held", "wip", "undone"))


def shared(head: Head) -> bool:
    """Whether other working trees use, or may use, the same refs."""
    return head.git_dir != head.common_dir or bool(_others(head))


def elsewhere(head: Head) -> frozenset[str]:
    """The branches checked out in other working trees, which may move there."""
    homes = {head.common_dir, *_others(head)} - {head.git_dir}
    texts = (head_reader.read_small(os.path.join(home, "HEAD")).strip() for home in homes)
    return frozenset(text.removeprefix("ref:").strip() for text in texts if text.startswith("ref:"))


def _others(head: Head) -> list[str]:
    folder = os.path.join(head.common_dir, "worktrees")
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def quiet(change: Change) -> bool:
    """Not reported by itself: its effect is reported elsewhere."""
    return _starts(change.path, _QUIET)


def _of_objects(path: str) -> bool:
    return path in ("alternates", "http-alternates")


def _of_state(folder: str) -> Callable[[str], bool]:
    def counts(path: str) -> bool:
        parts = path.split("/")
        if parts[0] != "runs":
            return path in (".gitignore", "flows.cache") or parts[0] == "stamps"
        if len(parts) < 3:
            return True
        return (
            len(parts) == 3
            and parts[2] in ("events.jsonl", "hooks.json")
            and not event_log.is_being_written(f"{folder}/{path}")
        )

    return counts


def changes(held: Held) -> tuple[Change, ...]:
    return snapshot_walk.compare(held.base, held.now())


def steers(held: Held, change: Change) -> bool:
    return held.area.shown != ".git" or (_starts(change.path, _STEERS) and change.path != "info/refs")


def own_ledger(change: Change) -> bool:
    """Not protected while a process of ours wrote to it."""
    return change.kind == "added" and change.path.endswith("/events.jsonl")


def cache(held: Held, change: Change) -> bool:
    return held.area.shown == state_folder.NAME and _starts(change.path, _CACHES)


def _starts(path: str, names: tuple[str, ...]) -> bool:
    """A submodule's git folder is one like ours, below `modules/NAME/`."""
    if path.startswith("modules/"):
        return any(f"/{name}" in path for name in names)
    return any(path.startswith(name) if name.endswith("/") else path.split(".")[0] == name for name in names)


def shown(held: Held, change: Change) -> str:
    return f"{held.area.shown}/{change.path}"


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Area:
    """A folder and the filter `only` for its files; `shown` is its name in messages."""

    folder: str
    shown: str
    only: Callable[[str], bool]


class Held:
    """One area as it was."""

    def __init__(self, area: Area, data: dict[str, bytes]) -> None:
        self.area = area
        self.base = Snapshot(0, {})
        self._data = data

    def take(self) -> None:
        """As it is now; only what was touched is read again."""
        self.base = self.now()
        for path, item in self.base.items.items():
            if item.kind == "file" and item.value not in self._data:
                self._data[item.value] = _read(os.path.join(self.area.folder, path))

    def part(self, whole: Held) -> None:
        """As it was, too, of which more was held until now."""
        items = {path: item for path, item in whole.base.items.items() if self.area.only(path)}
        self.base = Snapshot(whole.base.taken, items, frozenset(filter(self.area.only, whole.base.folders)))

    def now(self) -> Snapshot:
        if not os.path.isdir(self.area.folder):
            return Snapshot(0, {})
        return snapshot_walk.take_snapshot(self.area.folder, before=self.base, only=self.area.only)

    def follow(self, paths: tuple[str, ...]) -> None:
        """These were changed by doflow itself: take their current state."""
        now = self.now()
        items = {path: item for path, item in self.base.items.items() if path not in paths}
        items |= {path: now.items[path] for path in paths if path in now.items}
        self.base = Snapshot(self.base.taken, items, self.base.folders | now.folders)
        for path in paths:
            if path in items and items[path].kind == "file":
                self._data.setdefault(items[path].value, _read(os.path.join(self.area.folder, path)))

    def restore(self, changes: tuple[Change, ...], keep: Keep) -> None:
        os.makedirs(self.area.folder, exist_ok=True)
        snapshot_walk.restore(self.area.folder, self.base, changes, "", self._data.__getitem__, keep)
        for change in changes:
            if change.path == "index" and change.path in self.base.items:
                _as_old(os.path.join(self.area.folder, change.path), self.base.items[change.path])

    def values(self) -> frozenset[str]:
        return frozenset(item.value for item in self.base.items.values() if item.kind == "file")

    def plain(self) -> dict[str, object]:
        rows = [(name, it.kind, it.mode, it.value, it.blob, it.stat) for name, it in self.base.items.items()]
        folders = sorted(self.base.folders)
        return {"folder": self.area.folder, "taken": self.base.taken, "items": rows, "folders": folders}

    def load(self, told: Mapping[str, list[list[object]]]) -> None:
        rows = {str(row[0]): snapshot_entries.item(row) for row in told["items"]}
        self.base = Snapshot(int(str(told["taken"])), rows, frozenset(map(str, told["folders"])))


def _as_old(path: str, item: Item) -> None:
    """git decides by the mtime of its index which files it must read again."""
    os.utime(path, ns=(item.stat[1], item.stat[1]), follow_symlinks=False)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        raise atomic_files.io_error("read", path, error) from error
    with os.fdopen(fd, "rb") as stream:
        return stream.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""


@dataclass(frozen=True, slots=True)
class Dot:
    """What `.git` was: a folder (by its inode), a file or a link (by its bytes)."""

    kind: int
    text: bytes


def inspect_dotgit(head: Head) -> Dot:
    path = os.path.join(head.top, ".git")
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return Dot(0, b"")
    if stat.S_ISLNK(mode):
        return Dot(stat.S_IFLNK, os.fsencode(os.readlink(path)))
    if not stat.S_ISREG(mode):
        return Dot(stat.S_IFMT(mode), b"")
    with open(path, "rb", opener=_quietly) as stream:
        return Dot(stat.S_IFREG, stream.read(1 << 16))


def restore_pointer(head: Head, was: Dot, keep: Keep) -> bool:
    """True if it had to be restored. If it cannot be restored, the run stops with an error."""
    if inspect_dotgit(head) == was and _is(head.git_dir, head):
        return False
    home = head.git_dir if was.kind != stat.S_IFDIR else os.path.join(head.top, ".git")
    found = head.git_dir if _is(head.git_dir, head) else _elsewhere(head)
    if not found or (was.kind != stat.S_IFDIR and found != head.git_dir):
        raise _lost(head)
    top = atomic_files.open_folder(head.top)
    try:
        if found != home:
            _free(top, keep)
            os.rename(found, home)
        elif inspect_dotgit(head) != was:
            _free(top, keep)
            if was.kind == stat.S_IFLNK:
                os.symlink(os.fsdecode(was.text), ".git", dir_fd=top)
            else:
                atomic_files.replace_in_folder(top, ".git", was.text, 0o644, sync=True)
    finally:
        os.close(top)
    return True


def _free(top: int, keep: Keep) -> None:
    try:
        os.stat(".git", dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        return
    keep(top, ".git", ".git")


def _is(path: str, head: Head) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == head.inode and os.path.isdir(os.path.join(head.common_dir, "objects"))


def _elsewhere(head: Head) -> str:
    """Moved to another name in the project, in the same folder or one below."""
    for folder in (head.top, os.path.dirname(head.top), *_folders(head.top)):
        for path in _folders(folder):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) == head.inode and os.path.isdir(os.path.join(path, "objects")):
                return path
    return ""


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lost(head: Head) -> WorldError:
    return WorldError(
        f"the git folder {head.git_dir} was deleted, emptied or replaced while an agent was running",
        hint=(
            "doflow stopped; your files are as the agent left them\n"
            "  restore .git from a clone or a backup, then run the same command; `sandbox: bwrap` prevents this"
        ),
    )


def _quietly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
