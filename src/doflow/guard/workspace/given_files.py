"""The person's uncommitted files when a job was opened: they stay theirs, whatever the job does."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from doflow.git import history
from doflow.guard.fence.scope import Scope
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import JobStorage
from doflow.runs.context import RunContext
from doflow.util import atomic_files
from doflow.util.errors import WorldError


class GivenFiles:
    """The person's uncommitted files when the job was opened: tracked ones that differed from HEAD with their bytes, and the
    names of untracked ones."""

    def __init__(self, store: JobStorage, worker: threading.Thread | None = None) -> None:
        self._folder = store.given
        self._worker = worker
        self._names: Mapping[str, str] | None = None

    def wait(self) -> None:
        if self._worker is not None:
            self._worker.join()

    def content(self, path: str) -> bytes | None:
        """What the job was given at a path (from the project's root) that had uncommitted edits; None = it had none."""
        name = self._listed().get(path)
        return Path(self._folder, name).read_bytes() if name else None

    def is_untracked(self, path: str) -> bool:
        """Whether git did not know this file of the person when the job was opened."""
        return self._listed().get(path) == ""

    def _listed(self) -> Mapping[str, str]:
        """Path -> name of the copy, '' = untracked, there is none."""
        self.wait()
        if self._names is None:
            try:
                self._names = json.loads(Path(self._folder, "names.json").read_bytes())
            except FileNotFoundError as error:
                hint = "see what it wrote: doflow workspace show; remove it: doflow workspace discard JOB"
                raise WorldError("your uncommitted files were not noted when the job began", hint) from error
        return self._names


def note_given_files(context: RunContext, store: JobStorage) -> GivenFiles:
    """Copy the uncommitted tracked files aside, in the background while the first program starts."""
    git = context.git

    def copy() -> None:
        with suppress(WorldError, OSError):  # then there are no names, and nothing is taken over
            os.makedirs(store.given, exist_ok=True)
            names = dict.fromkeys(history.untracked_in_project(git), "")
            for number, path in enumerate(history.uncommitted_files(git)):
                source = os.path.join(context.root, path)
                if os.path.isfile(source) and not os.path.islink(source):
                    shutil.copyfile(source, os.path.join(store.given, str(number)))
                    names[path] = str(number)
            atomic_files.write_file(os.path.join(store.given, "names.json"), json.dumps(names).encode(), sync=False)

    worker = threading.Thread(target=copy, daemon=True)
    worker.start()
    return GivenFiles(store, worker)


def changed_uncommitted_work(
    context: RunContext, scope: Scope, head: str, given: GivenFiles, changes: Sequence[LayerChange]
) -> tuple[LayerChange, ...]:
    """Where a job may write everything: untracked files of the person are not its to change, nor are those that have
    uncommitted edits its to delete. `head`: the commit when the job was opened."""
    folder, left = f"{context.run.dir}/", context.record.command_outputs

    def is_theirs(change: LayerChange) -> bool:
        path = change.path
        if change.kind == "added" or path.startswith(folder) or scope.names(path):
            return False
        if left.get(path) == context.files.digest(path):
            return False
        if given.is_untracked(path):
            return True
        edited = given.content(path) if not change.source else None  # git may list a file that only looks edited
        return edited is not None and edited != history.filtered_file_at(context.git, head, f"{context.prefix}{path}")

    return tuple(change for change in changes if is_theirs(change))
