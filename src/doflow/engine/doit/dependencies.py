"""The files of a step for doit: its `file_dep`, its `targets`, and which of the files changed.

`uptodate`, which compares the key, decides alone whether a step runs. What doit compares file by file are the digests of
the same key and of the record in doflow.lock, so that the two cannot disagree.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from doit.dependency import CHECKERS

from doflow.flow.model import Step
from doflow.runs import fingerprint
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import Key


class FileState(NamedTuple):
    """The digest of a file as doflow.lock has it, and as it is now."""

    recorded: str
    current: str


class Judgement(NamedTuple):
    """`reasons` empty = up to date; `files`: the file_dep as it is now (None = as when the task was made); `recorded`:
    the digests in doflow.lock (None = never done)."""

    reasons: tuple[str, ...] = ()
    files: frozenset[str] | None = None
    recorded: Mapping[str, str] | None = None
    current: Mapping[str, str] = {}

    def state(self, path: str) -> FileState | None:
        """What doit compares for one file; None = it knows nothing of it."""
        if not self.reasons:
            return _SAME
        if self.recorded is None or path not in self.recorded:
            return None
        return FileState(self.recorded[path], self.current.get(path, ""))

    @property
    def former(self) -> tuple[str, ...] | None:
        """The file_dep of the last time, where doit may compare it with that of now."""
        return tuple(self.recorded) if self.reasons and self.recorded is not None else None


_SAME = FileState("", "")


def judge_step(
    context: RunContext, reasons: tuple[str, ...], recorded: Mapping[str, str], key: Key | None
) -> Judgement:
    """The judgement of a step whose record and key are known (no key = it was never done)."""
    if key is None:
        return Judgement(reasons)
    files = frozenset(doit_path(context.root, path) for path in key.files)
    if not reasons:
        return Judgement((), files)
    current = _by_file(context, key.reads, key)
    return Judgement(reasons, files, _by_file(context, recorded, key), current)


def _by_file(context: RunContext, reads: Mapping[str, str], key: Key) -> dict[str, str]:
    """Digests by file; several sections of one count together, a glob over very many files does not."""
    listed = set(key.files)
    found: dict[str, list[str]] = {}
    for shown, digest in sorted(reads.items()):
        path = shown if shown in listed or "#" not in shown else shown.rpartition("#")[0]
        if digest and (path in listed or not key.reads.get(shown)):
            found.setdefault(doit_path(context.root, path), []).append(f"{shown} {digest}")
    return {path: "\n".join(digests) for path, digests in found.items()}


class Dependencies:
    """The `file_dep` and `targets` of all steps of a flow.

    doit makes a task_dep of every file_dep that is a target. A target is therefore declared only by a step of the active
    pipeline, by one only, and only if it comes before all that read the file: else a file would pay for steps that are not
    on the route. After a router, which may still choose another route, a file_dep is known when the step is ready to run.
    """

    def __init__(self, context: RunContext, executing: bool, alone: bool) -> None:
        self._context = context
        self._behind: dict[str, set[str]] = {}  # for each step, all steps after it
        self._order = {name: place for place, name in enumerate(context.order.active())}
        behind = {node.step for node in context.plan.nodes if node.router}
        late = {step.id for step in context.flow.steps if step.id in behind or step.id not in self._order}
        self._late = late if executing else set()
        self._files = {step.id: self._read_by(step) for step in context.flow.steps if step.id not in self._late}
        self._makers = {} if context.frozen else self._declared()
        self._inside = "" if alone else f"{context.run.dir}/"

    def file_dep(self, step: Step) -> list[str]:
        if step.id.partition(":")[0] in self._late:
            return []
        files = self._files[step.id] if step.id in self._files else self._read_by(step)
        return [doit_path(self._context.root, path) for path in files]

    def targets(self, step: Step) -> list[str]:
        name = step.id.partition(":")[0]
        if self._context.frozen or step.kind == "install" or name not in self._order:
            return []
        paths = (self._context.files.path(said) for said in step.makes)
        mine = [path for path in paths if self._makers.get(path, name) == name and path.startswith(self._inside)]
        return [doit_path(self._context.root, path) for path in mine]

    def _read_by(self, step: Step) -> tuple[str, ...]:
        context = self._context
        if step.kind != "implement":
            return fingerprint.input_files(step, context.files)
        path = context.phases(step)
        return (path,) if (context.root / path).is_file() else ()

    def _declared(self) -> dict[str, str]:
        """For each file the step that declares it; '' = none may."""
        context = self._context
        makers: dict[str, str] = {}
        active = [step for name in self._order if (step := context.flow.step(name))]
        for step in active:
            for said in step.makes:
                makers.setdefault(context.files.path(said), step.id)
        readers = active + [step for step in context.flow.steps if step.id not in self._order]
        for step in readers:
            for path in self._files.get(step.id, ()):
                if (maker := makers.get(path)) and maker != step.id and not self._before(maker, step.id):
                    makers[path] = ""
        return makers

    def _before(self, first: str, second: str) -> bool:
        """Does the second step wait for the first one?"""
        context, order = self._context, self._order
        if second not in order or order[first] > order[second]:
            return False
        if not context.plan.after or first in context.order.before(second):
            return True
        if first not in self._behind:
            reached = self._behind[first] = {first}
            for name in order:
                if not reached.isdisjoint(context.order.before(name)):
                    reached.add(name)
        return second in self._behind[first]


@cache
def _prefix(root: Path) -> str:
    return "" if os.path.realpath(root) == os.getcwd() else f"{root}/"


def doit_path(root: Path, path: str) -> str:
    """A path of the project for doit: relative to the folder in which doit runs."""
    return f"{_prefix(root)}{path}"


def checker(chosen: Any) -> Any:
    """The file checker that the user chose (a name or a class), extended to compare our steps by their key.

    It keeps its name, which doit stores with the state of the user's own tasks.
    """
    base: Any = CHECKERS.get(chosen) if isinstance(chosen, str) else chosen
    if not callable(base):
        return chosen  # doit reports the error

    def check_modified(self: Any, path: str, file_stat: Any, state: Any) -> bool:
        if isinstance(state, FileState):
            return state.recorded != state.current
        return bool(base.check_modified(self, path, file_stat, state))

    def get_state(self: Any, path: str, state: Any) -> Any:
        """None = nothing to store: doflow.lock has it."""
        return None if isinstance(state, FileState) else base.get_state(self, path, state)

    return type(base.__name__, (base,), {"check_modified": check_modified, "get_state": get_state})
