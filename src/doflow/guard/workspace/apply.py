"""Taking over: writes the accepted changes of a job to the project, merged with what the person did meanwhile.

The order is: intent record, files, commit. Every write is safe to repeat, so an interrupted one is finished by the next
command without a call.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doflow.git import head_reader, history
from doflow.guard.quarantine import Quarantine, open_parent
from doflow.guard.workspace import layers, merging
from doflow.guard.workspace.given_files import GivenFiles
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.merging import Merge, Unmergeable
from doflow.guard.workspace.storage import JobStorage, Opened
from doflow.runs.context import RunContext
from doflow.util import atomic_files, state_folder
from doflow.util.errors import WorldError


@dataclass(frozen=True, slots=True)
class Conflict:
    """A file that cannot be written: why, for the person."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Planned:
    """`writes`: one entry per file; `contents`: what the commit gets where that is not the file: path -> file."""

    writes: list[dict[str, Any]]
    conflicts: tuple[Conflict, ...]
    contents: Mapping[str, str]


def plan_writes(
    context: RunContext, store: JobStorage, opened: Opened, given: GivenFiles, changes: Sequence[LayerChange]
) -> Planned:
    """What has to be written where. Nothing of the project is touched yet."""
    shutil.rmtree(store.staged, ignore_errors=True)
    os.makedirs(store.staged)
    writes: list[dict[str, Any]] = []
    conflicts: list[Conflict] = []
    contents: dict[str, str] = {}
    head = head_reader.find_head(str(context.root)).commit
    gone = {change.path for change in changes if not change.source}
    for number, change in enumerate(changes):
        staged = os.path.join(store.staged, str(number))
        try:
            plan = Merge(context, opened, given, head, change, staged)
            write = plan.file()
            in_commit = plan.committed(write)
        except Unmergeable as problem:
            conflicts.append(Conflict(change.path, str(problem)))
            continue
        if write is not None and (left := _left_in_folder(context, change, gone)):
            conflicts.append(Conflict(change.path, f"it replaced a folder that still holds {left}"))
            continue
        if write is not None:
            writes.append(write)
        if in_commit is not None:
            contents[change.path] = in_commit
    return Planned(writes, tuple(conflicts), contents)


def _left_in_folder(context: RunContext, change: LayerChange, gone: set[str]) -> str:
    """A file of the project that would be lost if this change replaced the folder it is in."""
    place = os.path.join(context.root, change.path)
    if not change.source or os.path.islink(place) or not os.path.isdir(place):
        return ""
    return next((name for name in layers.View(str(context.root), ()).files(change.path) if name not in gone), "")


def store_contents(context: RunContext, files: Mapping[str, str]) -> dict[str, list[str]]:
    """Store what only the commit gets among git's objects: path -> mode and id."""
    found = {}
    for path, source in files.items():
        mode = "100755" if os.stat(source).st_mode & 0o100 else "100644"
        found[path] = [mode, history.store_file(context.git, source, f"{context.prefix}{path}")]
    return found


def write_files(context: RunContext, job: str, writes: Iterable[Mapping[str, Any]]) -> None:
    """Write what is not written yet, each file at once and whole. A file that was changed since the intent was recorded
    stays as it is."""
    ordered = sorted(writes, key=lambda write: (bool(write["now"]), write["path"]))  # deletions first
    for write in ordered:
        now = merging.entry_digest(os.path.join(context.root, write["path"]))
        if now == write["now"] and not _mode_differs(context, write):
            continue
        if now not in (write["was"], write["now"]):
            message = f"{write['path']}: changed while the result of {job} was being written; kept as it is"
            if write.get("from"):
                kept = Quarantine(context.root / state_folder.QUARANTINE)
                kept.take_files([(write["from"], write["path"])], message, context.run.name, job)
            context.events.add("warning", message=message, hint="its version: doflow quarantine list")
            continue
        _write_one(str(context.root), write)
    atomic_files.syncfs(os.fspath(context.root))


def _mode_differs(context: RunContext, write: Mapping[str, Any]) -> bool:
    path = os.path.join(context.root, write["path"])
    if not write["now"] or os.path.islink(path):
        return False
    return stat.S_IMODE(os.lstat(path).st_mode) != int(write["mode"])


def _write_one(root: str, write: Mapping[str, Any]) -> None:
    path = write["path"]
    try:
        folder = open_parent(root, path)
    except WorldError:
        _clear_the_way(root, path)
        folder = open_parent(root, path)
    name = os.path.basename(path)
    try:
        if not write["now"]:
            os.unlink(name, dir_fd=folder)
            _remove_empty_folders(root, os.path.dirname(path))
            return
        with suppress(OSError):
            os.rmdir(name, dir_fd=folder)  # an empty folder in its place
        source = write["from"]
        if os.path.islink(source):
            temporary = f".doflow-{os.urandom(8).hex()}.tmp"
            os.symlink(os.readlink(source), temporary, dir_fd=folder)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            atomic_files.replace_in_folder(folder, name, Path(source).read_bytes(), write["mode"], sync=False)
    except OSError as error:
        raise atomic_files.io_error("write", path, error) from error
    finally:
        os.close(folder)


def _clear_the_way(root: str, path: str) -> None:
    """A file or link where a folder has to be: it was deleted by the job, too."""
    place = root
    for part in path.split("/")[:-1]:
        place = os.path.join(place, part)
        if os.path.islink(place) or (os.path.lexists(place) and not os.path.isdir(place)):
            os.unlink(place)
            return


def _remove_empty_folders(root: str, folder: str) -> None:
    while folder:
        try:
            os.rmdir(os.path.join(root, folder))
        except OSError:
            return
        folder = os.path.dirname(folder)


def ignored_by(context: RunContext, rules: Mapping[str, str], paths: Sequence[str]) -> frozenset[str]:
    """Those of these new paths that the `.gitignore` files of a job ignore (path -> its content)."""
    if not paths:
        return frozenset()
    with tempfile.TemporaryDirectory() as folder:
        for name in history.tracked_named(context.git, ".gitignore"):
            if name not in rules and os.path.isfile(os.path.join(context.root, name)):
                _copy(os.path.join(context.root, name), os.path.join(folder, context.prefix, name))
        for name, source in rules.items():
            if source and os.path.isfile(source) and not os.path.islink(source):
                _copy(source, os.path.join(folder, context.prefix, name))
        return history.ignored_among(context.git, paths, work_tree=folder)


def _copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)


def ignored_entries(context: RunContext, tree: str) -> list[str]:
    """The files and whole folders of a layer that git ignores."""
    found: list[str] = []
    folders = [""]
    while folders:
        names = [f"{folder}{name}" for folder in folders for name in sorted(os.listdir(os.path.join(tree, folder)))]
        names = [name for name in names if name != ".git"]
        passed = history.ignored_paths(context.git, names)
        found += [name for name in names if name in passed]
        inner = (name for name in names if name not in passed and os.path.isdir(os.path.join(tree, name)))
        folders = [f"{name}/" for name in inner if not os.path.islink(os.path.join(tree, name))]
    return found
