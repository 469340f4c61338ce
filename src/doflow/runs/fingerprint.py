"""Fingerprint of a step: a hash of everything its result depends on, in named parts, so that changes can be explained;
and the project's files as a run sees them: paths of a flow, contents, digests."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from doflow.flow import backlog, markdown
from doflow.flow.model import Check, Prompt, Read, Step
from doflow.flow.parsing import syntax
from doflow.flow.parsing.syntax import substitute as substitute
from doflow.runs import lockfile
from doflow.util import atomic_files, file_signature, globs, state_folder
from doflow.util.errors import WorldError
from doflow.util.file_signature import FileSignature

ABSENT = ""
PACKAGED = "packaged "
#: a glob over more files than this counts as one value
_MANY = 1000
_Expanded = Sequence[tuple[Read, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Key:
    """`key` = hash over `parts` and `reads`; `missing` = required inputs that do not exist; `files` = existing inputs
    (see `input_files`)."""

    key: str
    parts: Mapping[str, str]
    reads: Mapping[str, str]
    missing: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def step_key(
    step: Step,
    files: ProjectFiles,
    params: Mapping[str, str],
    note: str = "",
    markers: Sequence[tuple[str, str]] = (),
    diff: str = "",
) -> Key:
    """The current key of a step."""
    facts = _facts(step)
    parts = {"step": facts[1]}
    if step.prompt is not None:
        parts["prompt"] = _prompt(step.prompt)
    if used := _used(step, facts[2], params):
        parts["params"] = short_hash(used)
    if note:
        parts["note"] = short_hash(note)
    if markers:
        parts["follows"] = short_hash(list(markers))
    if diff:
        parts["diff"] = short_hash(diff)
    if voices := [voice.text for voice in step.voices if not voice.packaged]:
        parts["voices"] = short_hash(voices)
    expanded = _expand(step.reads, files)
    reads, missing = _digests(expanded, files)
    own = {files.path(name) for name in step.makes}  # a glob may match the step's own artifacts, which are not inputs
    reads = {path: digest for path, digest in reads.items() if path not in own}
    return Key(lockfile.hash_parts(parts, reads), parts, reads, missing, _present(expanded, own, files))


def phase_key(step: Step, text: str, before: str) -> Key:
    """The key of a phase: its section with empty boxes, its definition, the key of the phase before."""
    parts = {"section": short_hash(markdown.untick_boxes(text).strip()), "step": _facts(step)[1]}
    if step.prompt is not None:
        parts["prompt"] = _prompt(step.prompt)
    if before:
        parts["before"] = before[:16]
    return Key(lockfile.hash_parts(parts, {}), parts, {})


def input_files(step: Step, files: ProjectFiles) -> tuple[str, ...]:
    """The files that a step reads and that exist now, without folders and without globs over very many files."""
    return _present(_expand(step.reads, files), {files.path(name) for name in step.makes}, files)


def _expand(reads: Sequence[Read], files: ProjectFiles) -> _Expanded:
    return [(read, files.expand(read.path)) for read in reads]


def _present(expanded: _Expanded, own: set[str], files: ProjectFiles) -> tuple[str, ...]:
    few = [path for _, paths in expanded if len(paths) <= _MANY for path in paths if path not in own]
    return tuple(path for path in dict.fromkeys(few) if os.path.isfile(os.path.join(files.root, path)))


def read_digests(reads: Sequence[Read], files: ProjectFiles) -> tuple[dict[str, str], tuple[str, ...]]:
    return _digests(_expand(reads, files), files)


def _digests(expanded: _Expanded, files: ProjectFiles) -> tuple[dict[str, str], tuple[str, ...]]:
    found: dict[str, str] = {}
    missing: list[str] = []
    for read, paths in expanded:
        for path in paths:
            shown = f"{path}#{read.section}" if read.section else path
            found[shown] = _digest(path, read.section, files)
            if not found[shown] and not read.optional:
                missing.append(shown)
        if not paths and not read.optional:
            missing.append(files.path(read.path))
    return found, tuple(missing)


def short_hash(value: object, length: int = 16) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:length]


_known: dict[int, tuple[Step, str, tuple[str, ...]]] = {}


def _facts(step: Step) -> tuple[Step, str, tuple[str, ...]]:
    """The constant parts of a step: the hash of its definition and the parameters it names. (`step` is kept so that its
    id is not reused.)"""
    held = _known.get(id(step))
    if held is None:
        if len(_known) > 20_000:
            _known.clear()
        texts = [step.prompt.text if step.prompt else "", step.shell, *step.run, *step.makes, *step.check.run]
        named = {name for text in texts for name in syntax.params(text)}
        held = _known[id(step)] = (step, _definition(step), tuple(sorted(named)))
    return held


def _definition(step: Step) -> str:
    check = {field.name: value for field in fields(Check) if (value := getattr(step.check, field.name))}
    if "tasks" in check:  # its form is not part of the key: a list that exists is checked before its phases run
        check["tasks"] = True
    parts = [step.kind, list(step.run), step.shell, list(step.makes), step.from_text, check]
    return short_hash([*parts, list(step.personas), step.rounds, [route.when for route in step.routes]])


def _prompt(prompt: Prompt) -> str:
    return f"{PACKAGED}{prompt.name}" if prompt.packaged else short_hash(prompt.text)


def _used(step: Step, named: Sequence[str], params: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in step.params if name != "index"}  # an item that only moved is unchanged
    return {name: params[name] for name in named if name in params} | own


def content_digest(path: str, files: ProjectFiles, data: bytes | None = None) -> str:
    """The digest of a file without its progress (ticked boxes, statuses), now or with the content `data`."""
    return _digest(path, "", files if data is None else files.with_pending({path: data}))


def _digest(path: str, section: str, files: ProjectFiles) -> str:
    if not section and path not in files.task_lists:
        return files.digest(path)
    text = files.text(path)
    if text is None:
        return ABSENT
    if markdown.is_backlog(path):
        text = backlog.without_statuses(text)
    if section:
        cut = markdown.section(text, section)
        if cut is None:
            return ABSENT
        text = cut.strip()
    return short_hash(markdown.untick_boxes(text), 64)


class ProjectFiles:
    """`task_lists`: files whose ticked boxes are ignored. `pending`: future contents of some files (None = deleted), for
    read-only commands. In a workspace some files are elsewhere: see `show`."""

    def __init__(
        self,
        root: Path,
        run_dir: str,
        task_lists: frozenset[str] = frozenset(),
        pending: Mapping[str, bytes | None] | None = None,
    ) -> None:
        self.root = root
        self.run_dir = run_dir
        self.task_lists = task_lists
        self.pending = pending or {}
        self._shown: Mapping[str, str] = {}
        self._digests: dict[str, tuple[FileSignature, str]] = {}

    def show(self, places: Mapping[str, str]) -> None:
        """Read these paths elsewhere from now on: the file that holds the content, '' = deleted."""
        self._shown = places

    @property
    def shown(self) -> Mapping[str, str]:
        """What a workspace shows elsewhere."""
        return self._shown

    def in_workspace(self) -> ProjectFiles:
        """The same files, for a workspace that shows some of them elsewhere."""
        return ProjectFiles(self.root, self.run_dir, self.task_lists, self.pending)

    def locate(self, path: str) -> str:
        """The file that holds the content of a path, whether it exists or not; '' if a workspace has deleted it."""
        return self._shown[path] if path in self._shown else os.path.join(self.root, path)

    def with_pending(self, pending: Mapping[str, bytes | None]) -> ProjectFiles:
        return ProjectFiles(self.root, self.run_dir, self.task_lists, {**self.pending, **pending})

    def path(self, name: str) -> str:
        """A path as a flow writes it, relative to the project's root."""
        return name.lstrip("/") if name.startswith("/") else f"{self.run_dir}/{name}"

    def expand(self, name: str) -> tuple[str, ...]:
        """The files that a path or a glob of a flow means, in order."""
        path = self.path(name)
        if not globs.is_pattern(path):
            return (path,)
        names = set(globs.find_files(self.root, path)) - self._shown.keys()
        names |= {name for name, place in self._shown.items() if place and globs.matches((f"/{path}",), name)}
        return tuple(sorted(name for name in names if not name.startswith((".git/", f"{state_folder.NAME}/"))))

    def text(self, path: str) -> str | None:
        """The text of a file (lines end in LF), or None if there is none; never waits on a pipe."""
        data = self.pending[path] if path in self.pending else self._read(path)
        return None if data is None else data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")

    def _read(self, path: str) -> bytes | None:
        place = self.locate(path)
        if not place:
            return None
        try:
            descriptor = os.open(self._target(path, place), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise WorldError(f"{path}: cannot be read ({cause.strerror})") from cause
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()

    def digest(self, path: str) -> str:
        """SHA-256 of a file (a link: of its target), '' if there is none; cached until its metadata changes."""
        if path in self.pending:
            data = self.pending[path]
            return "" if data is None else atomic_files.data_digest(data)
        full = self.locate(path)
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if stat.S_ISDIR(found.st_mode):
            return ""
        if stat.S_ISLNK(found.st_mode):
            target = self._target(path, full)
            content = atomic_files.file_digest(target) if os.path.isfile(target) else ""
            text = f"link to {os.readlink(full)}, which holds {content}"
            return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        signature = file_signature.from_status(found)
        known = self._digests.get(full)
        if known is None or known[0] != signature:
            known = (signature, atomic_files.file_digest(full))
            self._digests[full] = known
        return known[1]

    def _target(self, path: str, place: str) -> str:
        """The file at the end of a link, as programs of the workspace see it."""
        if not os.path.islink(place):
            return place
        if path not in self._shown:
            return os.path.realpath(place)
        folder = os.path.dirname(os.path.join(self.root, path))
        target = os.path.normpath(os.path.join(folder, os.readlink(place)))
        name = os.path.relpath(target, self.root)
        return self._shown.get(name) or os.path.realpath(target)
