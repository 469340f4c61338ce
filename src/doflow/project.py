"""A project: its folder, its settings and its flows, read once and kept compiled while the files stay the same."""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doflow import hot
from doflow.version import VERSION

STATE = ".doflow"
_CACHE = "flows.cache"
_NOT_RUN = frozenset({
    "list", "help", "info", "forget", "clean", "ignore", "dumpdb", "strace", "tabcompletion", "reset-dep", "auto",
})  # fmt: skip


class Project:
    """Flows and plans are plain data until somebody needs them as types."""

    def __init__(self, root: Path, values: dict[str, Any]) -> None:
        self.root = root
        self.about: dict[str, str] = values["about"]  # flow → what it is for
        self.params: dict[str, Any] = values["params"]  # flow → [(name, about, required, default)]
        self.broken: dict[str, str] = values["broken"]  # file stem → what is wrong
        self.sources = tuple(values["sources"])
        self.values = values
        self._detail: dict[str, Any] | None = values.get("detail")
        self._flows: dict[str, Any] = {}

    @property
    def detail(self) -> dict[str, Any]:
        """Settings, flows and plans: only a command that has something to do needs them."""
        if self._detail is None:
            self._detail = marshal.loads(self.values["packed"])
        return self._detail

    def flow(self, name: str) -> Any:
        from doflow import model

        if name not in self._flows:
            self._flows[name] = _typed(self.detail["flows"][name], vars(model))
        return self._flows[name]

    def settings(self) -> Any:
        from doflow import model

        return _typed(self.detail["settings"], vars(model))

    @property
    def layout(self) -> str:
        """The folder that runs are kept in."""
        return str(self.detail["settings"].get("layout", "specs"))

    def plan(self, name: str) -> Any:
        from doflow import plan

        flow, about, nodes, ends, pipeline, routes, after = self.detail["plans"][name]
        return plan.Plan(flow, about, tuple(plan.Node(*node) for node in nodes), ends, pipeline, routes, after)


def find(start: str | None = None) -> Path:
    return Path(hot.find(start or ""))


def open_(root: Path, environ: Mapping[str, str], words: Sequence[str] = ()) -> Project:
    """From the cache while every source is as it was; else from the YAML files.

    `words`: the command line of a run. The first time, only the flows that it names are read before the first step.
    """
    values = _cached(root, environ)
    if values is None:
        values = _read(root, environ, _named(root, words))
    return Project(root, values)


def _named(root: Path, words: Sequence[str]) -> list[str]:
    if not words or words[0] in _NOT_RUN:
        return []
    stems = dict.fromkeys(word.partition(":")[0] for word in words if not word.startswith("-"))
    return [stem for stem in stems if stem and "/" not in stem and (root / "flows" / f"{stem}.yaml").is_file()]


def keep(project: Project, environ: Mapping[str, str]) -> None:
    """Write the cache; only a run that has begun does, so that a refusal leaves nothing behind."""
    values = project.values
    if values.get("cached") or values["broken"]:
        return
    if values["partial"]:
        _complete(project, environ)
        if values["broken"]:
            return
    signs = [(name, _sign(name)) for name in project.sources]
    index = {name: values[name] for name in ("about", "params", "broken", "sources")}
    packed = marshal.dumps(project.detail)
    stored = {**index, "signs": signs, "for": _for(environ), "cached": True, "packed": packed}
    folder = project.root / STATE
    target = folder / _CACHE
    temporary = f"{target}.{os.getpid()}"
    try:
        with open(temporary, "wb") as stream:
            marshal.dump(stored, stream)
        os.replace(temporary, target)
    except OSError:
        return  # without a cache the flows are read again: slower, not worse
    values["cached"] = True


def _complete(project: Project, environ: Mapping[str, str]) -> None:
    """Read the flows that the first step did not have to wait for."""
    from doflow import load

    others = [name for name in load.names(project.root) if name not in project.about and name not in project.broken]
    rest = _read(project.root, environ, others) if others else None
    project.values["partial"] = False
    if rest is None:
        return
    for name in ("about", "params", "broken"):
        project.values[name].update(rest[name])
    for name in ("flows", "plans"):
        project.detail[name].update(rest["detail"][name])
    project.values["sources"] = list(dict.fromkeys([*project.values["sources"], *rest["sources"]]))
    project.sources = tuple(project.values["sources"])


def prepare(root: Path) -> None:
    """The state folder, which keeps itself out of git."""
    from doflow import files

    folder = root / STATE
    ignore = folder / ".gitignore"
    if not ignore.exists():
        folder.mkdir(exist_ok=True)
        files.write(ignore, b"*\n", sync=False)


def _cached(root: Path, environ: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        with open(root / STATE / _CACHE, "rb") as stream:
            values = marshal.load(stream)
        if values["for"] != _for(environ):
            return None
        if any(_sign(name) != sign for name, sign in values["signs"]):
            return None
    except (OSError, ValueError, EOFError, TypeError, KeyError):
        return None
    return dict(values)


def _read(root: Path, environ: Mapping[str, str], only: Sequence[str] = ()) -> dict[str, Any]:
    from doflow import load, plan, settings, subflow
    from doflow.errors import FlowError

    broken: dict[str, str] = {}
    try:
        chosen = settings.load(root, environ)
    except FlowError as error:
        chosen = settings.load(Path(os.devnull), {})
        broken["doflow.yaml"] = str(error)
    found = load.catalogue(root, chosen.command_variant, only)
    broken |= {name: str(error) for name, error in found.broken.items()}
    flows = {name: subflow.inline(flow, found.flows) for name, flow in found.flows.items()}
    plans = {name: plan.build(flow, chosen) for name, flow in flows.items()}
    detail = {
        "settings": _plain(chosen),
        "flows": {name: _plain(flow) for name, flow in flows.items()},
        "plans": {name: _bare(value) for name, value in plans.items()},
    }
    return {
        "partial": bool(only),
        "detail": detail,
        "about": {name: flow.about for name, flow in found.flows.items()},
        "params": {
            name: [(p.name, p.about, p.required, p.default) for p in flow.params] for name, flow in found.flows.items()
        },
        "broken": broken,
        "sources": [*found.sources, *settings.sources(root)],
    }


def _sign(name: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _for(environ: Mapping[str, str]) -> list[Any]:
    return [VERSION, sys.version, hot.overrides(dict(environ))]


def _plain(value: Any) -> Any:
    """Types into data that marshal can keep: a type of ours becomes (its name, its values)."""
    names = getattr(type(value), "__light__", ())
    if names:
        usual = type(value).__defaults__
        said = [(name, found) for name in names if (found := getattr(value, name)) is not usual.get(name, value)]
        return {"": type(value).__name__, **{name: _plain(found) for name, found in said}}
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return {"": "dict", "items": {name: _plain(item) for name, item in value.items()}}
    return value


def _typed(value: Any, types: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_typed(item, types) for item in value)
    if isinstance(value, dict):
        kind = value[""]
        if kind == "dict":
            return {name: _typed(item, types) for name, item in value["items"].items()}
        return types[kind](**{name: _typed(item, types) for name, item in value.items() if name})
    return value


def _bare(value: Any) -> Any:
    """Named tuples into plain ones."""
    if isinstance(value, tuple):
        return tuple(_bare(item) for item in value)
    if isinstance(value, Mapping):
        return {name: _bare(item) for name, item in value.items()}
    return value
