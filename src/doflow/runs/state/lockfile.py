"""Provenance: `doflow.lock` in a run's folder, the one thing that a clone needs.

The file is YAML; doflow writes one line per step and artifact (each a JSON object, which is YAML too), so that a
commit shows what changed and a merge stays readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.runs.state import lockfile_fields as fields
from doflow.util import atomic_files as files
from doflow.util.errors import FlowError, WorldError
from doflow.util.records import dataclass, field, replace

NAME = "doflow.lock"
_HEAD = "# What each artifact of this run was made from. Written by doflow; commit it.\n"
_FIELDS = ("run", "flow", "goal", "branch", "issue", "variant")
_PARAMS = "params"
_TABLES = ("steps", "artifacts", "approvals", "notes")
_MAPS = frozenset({"parts", "reads", "made", "by"})


@dataclass(frozen=True, slots=True)
class Record:
    """A finished step: its key, the parts of the key, and what else is worth knowing about it."""

    key: str
    parts: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)
    marker: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    at: str = ""

    def plain(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of the run: its digest and who wrote it (agent, person, answer, or the step that revised it)."""

    digest: str
    author: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's yes (or no with a note) to what had this digest."""

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
    steps: Mapping[str, Record] = field(default_factory=dict)
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


class Lines:
    """The lock's text, kept line by line, so that a run of many steps renders only what changed."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[object, str]] = {}

    def text(self, lock: Lock) -> bytes:
        parts = [_HEAD, "doflow: 1\n"]
        parts += [f"{name}: {_json(getattr(lock, name))}\n" for name in _FIELDS]
        parts += [f"{_PARAMS}: {_json(dict(lock.params))}\n"] if lock.params else []
        for title in _TABLES:
            rows: Mapping[str, Any] = getattr(lock, title)
            parts.append(f"{title}:\n" if rows else f"{title}: {{}}\n")
            parts += [self._row(title, name, row) for name, row in rows.items()]
        return "".join(parts).encode()

    def _row(self, title: str, name: str, row: Any) -> str:
        held = self._seen.get((title, name))
        if held is None or held[0] is not row:
            held = (row, f"  {_json(name)}: {_json(_plain(row))}\n")
            self._seen[title, name] = held
        return held[1]


def read(path: Path) -> Lock | None:
    """The lock in this file; None if there is none. Unreadable = an error that says so."""
    data = raw(path)
    return None if data is None else parse(data, str(path))


def raw(path: Path) -> bytes | None:
    """Its bytes; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise files.broke("read", str(path), error) from error


def parse(data: bytes, name: str) -> Lock:
    try:
        return _build(_quick(data.decode()))
    except (ValueError, RecursionError):
        pass
    from doflow.flow.parsing import loader as load

    try:
        return _build(load.parse(data.decode("utf-8", "replace"), name))
    except (ValueError, RecursionError, FlowError) as cause:
        why = cause.problems[0].message if isinstance(cause, FlowError) else str(cause)
        raise unreadable(name, why, data) from cause


def unreadable(name: str, why: str, data: bytes) -> WorldError:
    if conflicted(data):
        return _conflict(name)
    hint = f"git checkout -- {name}   brings back the committed one; or delete it: it is rebuilt from the commits"
    return WorldError(f"{name}: this lock cannot be read ({why})", hint)


def conflicted(data: bytes) -> bool:
    """Whether git left a conflict in this lock (merge, rebase, revert …)."""
    from doflow.git import conflicts as unmerged

    return unmerged.marked(data)


def _conflict(name: str) -> WorldError:
    from doflow.git import conflicts as unmerged

    hint = unmerged.ways(name) or f"{unmerged.before(name)}rm '{name}'   it is rebuilt from the commits"
    return WorldError(f"{name}: git left a conflict in this lock", hint)


def head(path: Path) -> dict[str, Any]:
    """Only the first fields (run, flow, goal, branch …): what is needed to choose a run."""
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


def write(path: Path, data: bytes) -> None:
    files.write(str(path), data)


def with_step(lock: Lock, name: str, record: Record, artifacts: Mapping[str, Artifact]) -> Lock:
    return replace(lock, steps={**lock.steps, name: record}, artifacts={**lock.artifacts, **artifacts})


def record(values: Mapping[str, Any]) -> Record:
    """A record from its plain form (a line of the lock, an entry of the ledger)."""
    return Record(**{name: values[name] for name in Record.__slots__ if name in values})


def _quick(text: str) -> dict[str, Any]:
    """Our own layout, read without a YAML parser; anything else raises and is left to one."""
    found: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("  "):
            name, end = json.JSONDecoder().raw_decode(line, 2)
            if not line.startswith(": ", end):
                raise ValueError(line)
            if not isinstance(name, str) or not isinstance(rows, dict):
                raise ValueError(line)
            rows[name] = json.loads(line[end + 2 :])
        elif line and not line.startswith("#"):
            name, _, value = line.partition(":")
            if name not in ("doflow", *_FIELDS, _PARAMS, *_TABLES):
                raise ValueError(line)
            found[name] = rows = {} if not value.strip() else json.loads(value)
    return found


def _build(values: Any) -> Lock:
    """The one place where plain values become a lock; what is not of its type raises ValueError in words."""
    if not isinstance(values, dict):
        raise ValueError("it is empty" if values is None else "it does not hold `key: value` lines")
    if values.get("doflow") != 1:
        said = f"format {values['doflow']}" if "doflow" in values else "it names no format"
        raise ValueError(f"{said}, this doflow reads format 1: upgrade doflow")
    artifacts = fields.rows(values, "artifacts", "digest", Artifact.__slots__)
    approvals = fields.rows(values, "approvals", "digest", Approval.__slots__)
    return Lock(
        **{name: fields.text(values, name) for name in _FIELDS},
        steps={name: record(row) for name, row in fields.rows(values, "steps", "key", Record.__slots__, _MAPS)},
        artifacts={name: Artifact(**row) for name, row in artifacts},
        approvals={name: Approval(**row) for name, row in approvals},
        notes=fields.texts(values, "notes"),
        params=fields.texts(values, _PARAMS),
    )


def _plain(row: Any) -> Any:
    if isinstance(row, Record):
        return row.plain()
    if isinstance(row, str):
        return row
    return {name: value for name in row.__slots__ if (value := getattr(row, name))}


def _json(value: Any) -> str:
    return json.dumps(value)  # ASCII: any name and any goal comes back as it was
