"""Lock file: `doflow.lock` in a run's folder, the only state that a clone needs.

YAML with one line per step and artifact (each a JSON object), so that a commit shows what changed and git can merge it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from doflow.flow.parsing import loader
from doflow.git import conflicts
from doflow.util import atomic_files
from doflow.util.errors import FlowError, WorldError

NAME = "doflow.lock"
_HEAD = "# What each artifact of this run was made from. Written by doflow; commit it.\n"
_FIELDS = ("run", "flow", "goal", "branch", "issue", "variant")
_PARAMS = "params"
_TABLES = ("steps", "artifacts", "approvals", "notes")
_MAPS = frozenset({"parts", "reads", "made", "by"})


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of a finished step: its key, the parts of the key, and how it was done."""

    key: str
    parts: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)
    marker: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    at: str = ""

    def plain(self) -> dict[str, Any]:
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of the run: its digest and who wrote it (agent, person, answer, or the step that revised it)."""

    digest: str
    author: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's approval of the artifact with this digest."""

    digest: str
    by: str = ""
    note: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """All of it. `goal` is the digest of the goal."""

    run: str
    flow: str
    goal: str = ""
    branch: str = ""
    issue: str = ""
    variant: str = ""
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


class Lines:
    """Renders the lock file (in ASCII, so that any name and goal round-trips); only changed lines are rendered again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[object, str]] = {}

    def text(self, lock: Lock) -> bytes:
        parts = [_HEAD, "doflow: 1\n"]
        parts += [f"{name}: {json.dumps(getattr(lock, name))}\n" for name in _FIELDS]
        parts += [f"{_PARAMS}: {json.dumps(dict(lock.params))}\n"] if lock.params else []
        for title in _TABLES:
            rows: Mapping[str, Any] = getattr(lock, title)
            parts.append(f"{title}:\n" if rows else f"{title}: {{}}\n")
            parts += [self._row(title, name, row) for name, row in rows.items()]
        return "".join(parts).encode()

    def _row(self, title: str, name: str, row: Any) -> str:
        held = self._seen.get((title, name))
        if held is None or held[0] is not row:
            held = (row, f"  {json.dumps(name)}: {json.dumps(_plain(row))}\n")
            self._seen[title, name] = held
        return held[1]


def read_lock(path: Path) -> Lock | None:
    """The lock in this file; None if there is none. Raises WorldError if it cannot be read."""
    data = read_lock_bytes(path)
    return None if data is None else parse_lock(data, str(path))


def read_lock_bytes(path: Path) -> bytes | None:
    """The bytes of a lock file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise atomic_files.io_error("read", str(path), error) from error


def parse_lock(data: bytes, name: str) -> Lock:
    try:
        return _build(_quick(data.decode()))
    except (ValueError, RecursionError):
        pass

    try:
        return _build(loader.parse_yaml(data.decode("utf-8", "replace"), name))
    except (ValueError, RecursionError, FlowError) as cause:
        why = cause.problems[0].message if isinstance(cause, FlowError) else str(cause)
        raise unreadable_lock(name, why, data) from cause


def unreadable_lock(name: str, why: str, data: bytes) -> WorldError:
    if has_conflict(data):
        restore = f"{conflicts.last_clean_version(name)}rm '{name}'   it is rebuilt from the commits"
        return WorldError(f"{name}: git left a conflict in this lock", conflicts.resolution_hint(name) or restore)
    hint = f"git checkout -- {name}   restores the committed version; or delete it: it is rebuilt from the commits"
    return WorldError(f"{name}: this lock cannot be read ({why})", hint)


def has_conflict(data: bytes) -> bool:
    """Whether git left a conflict in this lock (merge, rebase, revert …)."""
    return conflicts.marked(data)


def read_header(path: Path) -> dict[str, Any]:
    """Only the first fields (run, flow, goal, branch …), which are enough to choose a run."""
    found: dict[str, Any] = {}
    try:
        with path.open("rb") as stream:
            for raw in stream:
                name, _, value = raw.decode("utf-8", "replace").partition(": ")
                if name in (*_FIELDS, _PARAMS):
                    found[name] = value = json.loads(value)
                    if not isinstance(value, dict if name == _PARAMS else str):
                        return {}
                elif name.startswith("steps"):
                    break
    except (OSError, ValueError, RecursionError):
        return {}
    return found


def locate_run(head: Mapping[str, Any], folder: str, usual: str) -> tuple[str, str, dict[str, str]]:
    """The name of a run by the header of its lock, its earlier folder if it was moved ('' = it was not), and its parameters
    where it is now. `usual`: the name of a run that was started in this folder."""
    params = dict(head.get(_PARAMS, {}))
    name, listed = str(head.get("run") or usual), params.get("tasks", "")
    if name == usual:
        return name, "", params
    old = f"{os.path.dirname(folder)}/{name}"
    if os.path.basename(os.path.dirname(listed)) == name:  # the list was in the run's folder
        old = os.path.dirname(listed)
        params["tasks"] = f"{folder}/{os.path.basename(listed)}"
    return name, old, params


def relocate(lock: Lock, old: str, new: str) -> Lock:
    """The lock of a run whose folder was moved: its paths, and the keys that are made of them."""

    def moved(paths: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{new}{path[len(old) :]}" if path.startswith(f"{old}/") else path: paths[path] for path in paths}

    def step(record: StepRecord) -> StepRecord:
        reads, made = moved(record.reads), moved(record.made)
        if reads == record.reads:
            return replace(record, made=made)
        return replace(record, key=hash_parts(record.parts, reads), reads=reads, made=made)

    steps = {name: step(record) for name, record in lock.steps.items()}
    return replace(lock, steps=steps, artifacts=moved(lock.artifacts))


def hash_parts(parts: Mapping[str, str], reads: Mapping[str, str]) -> str:
    """The key of a step: the hash over the parts of its fingerprint and the digests of its inputs."""
    text = json.dumps([sorted(parts.items()), sorted(reads.items())], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def build_step_record(values: Mapping[str, Any]) -> StepRecord:
    """A record from its plain values (a line of the lock file, an entry of the event log)."""
    return StepRecord(**{name: values[name] for name in StepRecord.__slots__ if name in values})


def _quick(text: str) -> dict[str, Any]:
    """Parse doflow's own layout without a YAML parser; raises ValueError for anything else."""
    found: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("  "):
            name, end = json.JSONDecoder().raw_decode(line, 2)
            if not line.startswith(": ", end) or not isinstance(name, str) or not isinstance(rows, dict):
                raise ValueError(line)
            rows[name] = json.loads(line[end + 2 :])
        elif line and not line.startswith("#"):
            name, _, value = line.partition(":")
            if name not in ("doflow", *_FIELDS, _PARAMS, *_TABLES):
                raise ValueError(line)
            found[name] = rows = {} if not value.strip() else json.loads(value)
    return found


def _build(values: Any) -> Lock:
    """Build a lock from plain values; wrong types raise ValueError with a message."""
    if not isinstance(values, dict):
        raise ValueError("it is empty" if values is None else "it does not hold `key: value` lines")
    if values.get("doflow") != 1:
        found = f"format {values['doflow']}" if "doflow" in values else "it has no format number"
        raise ValueError(f"{found}, this doflow reads format 1: upgrade doflow")
    steps = table_rows(values, "steps", "key", StepRecord.__slots__, _MAPS)
    artifacts = table_rows(values, "artifacts", "digest", Artifact.__slots__)
    approvals = table_rows(values, "approvals", "digest", Approval.__slots__)
    return Lock(
        **{name: text_field(values, name) for name in _FIELDS},
        steps={name: build_step_record(row) for name, row in steps},
        artifacts={name: Artifact(**row) for name, row in artifacts},
        approvals={name: Approval(**row) for name, row in approvals},
        notes=text_fields(values, "notes"),
        params=text_fields(values, _PARAMS),
    )


def _plain(row: Any) -> Any:
    return row if isinstance(row, str) else {name: value for name in row.__slots__ if (value := getattr(row, name))}


def text_field(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"`{name}` is not a string")
    return str(value or "")


def text_fields(values: Mapping[str, Any], title: str) -> dict[str, str]:
    found = table_field(values, title)
    return {name: text_field(found, name) for name in found}


def table_field(values: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    found = values.get(title)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"`{title}` is not a mapping")
    return found


def table_rows(
    values: Mapping[str, Any], title: str, needed: str, known: Collection[str], maps: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table: each has the field `needed`; known fields are strings, those in `maps` mappings to strings."""
    found = table_field(values, title)
    for name in found:
        row = dict(table_field(found, name))
        if needed not in row:
            raise ValueError(f"{title}: {name} has no `{needed}`")
        for key, value in row.items():
            if key in maps:
                text_fields(row, key)
            elif key not in known and not maps:
                raise ValueError(f"{title}: {name}: `{key}` is unknown to this version: upgrade doflow")
            elif key in known and not isinstance(value, str):
                raise ValueError(f"{title}: {name}: `{key}` is not a string")
        yield name, row
