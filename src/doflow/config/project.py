"""A project: its folder, settings and flows, compiled into `.doflow/flows.cache` until a source file changes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from doflow.config import settings, uptodate_stamp
from doflow.flow import model, plan, subflow
from doflow.flow.model import Flow, Profile
from doflow.flow.parsing import loader, syntax
from doflow.flow.plan import Node, Plan
from doflow.util import atomic_files, file_signature, state_folder
from doflow.util.errors import FlowError, Problem, UsageError, WorldError
from doflow.util.process import runner
from doflow.util.version import VERSION


class Project:
    """Settings, flows and plans of a project; those from the cache are converted from JSON on first use."""

    def __init__(self, root: Path, values: dict[str, Any], typed: dict[str, Any]) -> None:
        self.root = root
        self.about: dict[str, str] = values["about"]  # flow → description
        self.params: dict[str, Any] = values["params"]  # flow → [(name, about, required, default)]
        self.broken: dict[str, str] = values["broken"]  # file stem → error
        self.sources = tuple(values["sources"])
        self.values = values
        self._typed = typed
        self._read_at = time.time_ns() if values.get("cached") else values["read_at"]

    def unchanged(self) -> bool:
        """Are the sources of flows and settings unchanged since they were read?"""
        signs = [file_signature.from_path(name) for name in self.sources]
        return all(sign is None or max(sign[1], sign[2]) < self._read_at for sign in signs)

    def flow(self, name: str) -> Any:
        if name not in self._typed["flows"]:
            self._typed["flows"][name] = value_from_json(self.values["compiled"]["flows"][name])
        return self._typed["flows"][name]

    def plan(self, name: str) -> Any:
        if name not in self._typed["plans"]:
            self._typed["plans"][name] = plan_from_json(self.values["compiled"]["plans"][name])
        return self._typed["plans"][name]

    def settings(self) -> Any:
        if self._typed["settings"] is None:
            self._typed["settings"] = value_from_json(self.values["compiled"]["settings"])
        return self._typed["settings"]

    @property
    def layout(self) -> str:
        """The folder that runs are kept in."""
        return str(self.settings().layout)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON data for the cache."""
        return {
            "settings": value_to_json(self.settings()),
            "flows": {name: value_to_json(self.flow(name)) for name in self.about},
            "plans": {name: value_to_json(self.plan(name)) for name in self.about},
        }

    def complete(self, rest: dict[str, Any], typed: dict[str, Any]) -> None:
        """Add flows that were loaded later."""
        for name in ("about", "params", "broken"):
            self.values[name].update(rest[name])
        for name in ("flows", "plans"):
            self._typed[name].update(typed[name])
        self.sources = tuple(dict.fromkeys([*self.sources, *rest["sources"]]))


def find(start: str | None = None) -> Path:
    return Path(uptodate_stamp.find_project_root(start or ""))


def is_project(root: Path) -> bool:
    """Is this folder a doflow project?"""
    return any((root / name).exists() for name in ("dodo.py", "doflow.yaml"))


def open_project(root: Path, environ: Mapping[str, str], words: Sequence[str] = ()) -> Project:
    """From the cache if no source has changed, else from the YAML files.

    `words`: the command line of a run. Without a cache, only the flows that it names are loaded before the first step.
    """
    values = _cached(root, environ)
    if values is not None:
        return Project(root, values, {"settings": None, "flows": {}, "plans": {}})
    named = _named(root, words)
    if named:  # a run: start the process supervisor while the flows are loaded
        runner.warm()
    return Project(root, *_read(root, environ, named))


def _named(root: Path, words: Sequence[str]) -> list[str]:
    if not words or (words[0] in syntax.COMMANDS and words[0] != "run"):
        return []
    stems = dict.fromkeys(word.partition(":")[0] for word in words if not word.startswith("-"))
    return [stem for stem in stems if stem and "/" not in stem and (root / "flows" / f"{stem}.yaml").is_file()]


def write_cache(project: Project, environ: Mapping[str, str]) -> None:
    """Write the cache; called only by a run that has started, so that a refused command leaves no files."""
    values = project.values
    if values.get("cached") or values["broken"] or not project.unchanged():
        return
    if values["partial"]:
        _complete(project, environ)
        if values["broken"]:
            return
    signs = [(name, file_signature.from_path(name)) for name in project.sources]
    index = {name: values[name] for name in ("about", "params", "broken")}
    stored = {
        **index, "sources": list(project.sources), "signs": signs, "for": _cache_key(project.root, environ), "cached": True,
        "compiled": project.to_json(),
    }  # fmt: skip
    target = project.root / state_folder.FLOWS_CACHE
    try:
        atomic_files.write_file(target, json.dumps(stored).encode(), sync=False)
    except WorldError:
        return  # without a cache the flows are read again: slower, not worse
    values["cached"] = True


def _complete(project: Project, environ: Mapping[str, str]) -> None:
    """Load the flows that the command line did not name."""
    others = [name for name in loader.flow_names(project.root) if name not in {*project.about, *project.broken}]
    project.values["partial"] = False
    if others:
        project.complete(*_read(project.root, environ, others))


def _cached(root: Path, environ: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        with open(root / state_folder.FLOWS_CACHE, encoding="utf-8") as stream:
            values = json.load(stream)
        if values["for"] != _cache_key(root, environ):
            return None
        if not all(file_signature.is_unchanged(name, sign) for name, sign in values["signs"]):
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return dict(values)


def _read(root: Path, environ: Mapping[str, str], only: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    broken: dict[str, str] = {}
    began = time.time_ns()
    try:
        chosen = settings.load(root, environ)
    except FlowError as error:
        chosen = settings.load(Path(os.devnull), {})
        broken["doflow.yaml"] = str(error)
    found = loader.load_catalogue(root, chosen.command_variant, only)
    broken |= {name: str(error) for name, error in found.broken.items()}
    dots = _pipelines(root, chosen, found.flows, broken) if chosen.pipelines else ()
    known = found.flows
    flows = known | {
        name: subflow.inline_subflows(flow, known, chosen.gates) for name, flow in known.items() if flow.has_subflows
    }
    plans = {name: plan.build_plan(flow, chosen) for name, flow in flows.items()}
    values = {
        "partial": bool(only),
        "read_at": began,
        "about": {name: flow.about for name, flow in known.items()},
        "params": {
            name: [(p.name, p.about, p.required, p.default) for p in flow.params] for name, flow in known.items()
        },
        "broken": broken,
        "sources": [*found.sources, *settings.sources(root), *dots],
    }
    return values, {"settings": chosen, "flows": flows, "plans": plans}


def _pipelines(root: Path, chosen: Any, flows: dict[str, Any], broken: dict[str, str]) -> list[str]:
    """Add the DOT pipelines of the settings to the flows; returns their files."""
    for name, made in list_pipelines(root, chosen.pipelines, {*flows, *broken}, chosen.agents):
        if isinstance(made, FlowError):
            broken[name] = str(made)
            flows.pop(name, None)
        else:
            flows[name] = made
    return [str(root / path.lstrip("/")) for _, path in chosen.pipelines]


def _cache_key(root: Path, environ: Mapping[str, str]) -> list[Any]:
    """What the cache is valid for: this folder, this installation, these overrides."""
    return [str(root), VERSION, *uptodate_stamp.installation(), uptodate_stamp.settings_overrides(dict(environ))]


#: the key that holds a value's type; a mapping without it is a plain mapping
_TYPE = "$type"


def value_to_json(value: Any) -> Any:
    """A dataclass as JSON data: its type's name and the fields that differ from their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {name: found for name, default in _defaults(type(value)) if (found := getattr(value, name)) != default}
        return {_TYPE: type(value).__name__, **{name: value_to_json(found) for name, found in given.items()}}
    if isinstance(value, tuple):
        return [value_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: value_to_json(item) for name, item in value.items()}
    return value


def value_from_json(value: Any) -> Any:
    """The inverse of `value_to_json`; TypeError or KeyError for other data."""
    if isinstance(value, list):
        return tuple([value_from_json(item) for item in value])
    if isinstance(value, dict):
        known = {name: value_from_json(item) for name, item in value.items() if name != _TYPE}
        return _types()[value[_TYPE]](**known) if _TYPE in value else known
    return value


def plan_from_json(value: Any) -> Plan:
    flow, about, nodes, *rest = value_from_json(value)
    return Plan(flow, about, tuple([Node(*node) for node in nodes]), *rest)


@cache
def _types() -> Mapping[str, Any]:
    return {name: kind for name, kind in vars(model).items() if is_dataclass(kind)}


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, _default(field)) for field in fields(kind))


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def list_pipelines(
    root: Path, named: Iterable[tuple[str, str]], taken: Collection[str], profiles: Sequence[Profile] = ()
) -> Iterator[tuple[str, Flow | FlowError]]:
    """Each pipeline by name: its flow, or its errors. A name that a flow already has is an error."""
    from doflow.flow.dot import compiler

    for name, said in named:
        path = said.lstrip("/")
        try:
            if name in taken:
                message = f"{name} is the name of both a flow and a pipeline"
                raise FlowError((Problem("doflow.yaml", 0, 0, message, "rename one of them"),))
            yield name, compiler.compile_pipeline(str(root / path), name, path, profiles)
        except FlowError as error:
            yield name, error
        except WorldError as error:
            yield name, FlowError((Problem(path, 0, 0, error.message, "fix `pipelines:` in doflow.yaml"),))


def locate(root: Path, word: str, environ: Mapping[str, str]) -> Path:
    """The DOT file for an argument: a path, or the name of a pipeline in doflow.yaml."""
    if os.path.exists(word) or word.endswith((".dot", ".gv")) or os.sep in word:
        return Path(word)
    named = dict(settings.load(root, environ).pipelines)
    if word in named:
        return root / named[word].lstrip("/")
    known = f"pipelines in doflow.yaml: {', '.join(named)}" if named else "doflow.yaml has no `pipelines:`"
    raise UsageError(f"no such file or pipeline: {word}", known)
