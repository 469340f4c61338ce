"""A project: its folder, its settings and its flows, read once and kept compiled while the files stay the same."""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doflow.config import uptodate_stamp as hot
from doflow.flow.parsing import reserved_names
from doflow.util import bundle
from doflow.util.version import VERSION

STATE = ".doflow"
_CACHE = "flows.cache"


class Project:
    """Flows and plans: as types where they were just read, as plain data of the cache until somebody needs them."""

    def __init__(self, root: Path, values: dict[str, Any], typed: dict[str, Any]) -> None:
        self.root = root
        self.about: dict[str, str] = values["about"]  # flow → what it is for
        self.params: dict[str, Any] = values["params"]  # flow → [(name, about, required, default)]
        self.broken: dict[str, str] = values["broken"]  # file stem → what is wrong
        self.sources = tuple(values["sources"])
        self.values = values
        self._typed = typed
        self._read_at = time.time_ns() if values.get("cached") else values["read_at"]

    def unchanged(self) -> bool:
        """Are the files that flows and settings were read from still the ones that were read?"""
        signs = [_sign(name) for name in self.sources]
        return all(sign is None or max(sign[1], sign[2]) < self._read_at for sign in signs)

    def flow(self, name: str) -> Any:
        if name not in self._typed["flows"]:
            from doflow.config import cache as packing
            from doflow.flow import model

            self._typed["flows"][name] = packing.typed(self._cached("flows")[name], vars(model))
        return self._typed["flows"][name]

    def plan(self, name: str) -> Any:
        from doflow.flow import plan

        if name not in self._typed["plans"]:
            flow, about, nodes, *rest = self._cached("plans")[name]
            self._typed["plans"][name] = plan.Plan(flow, about, tuple(plan.Node(*node) for node in nodes), *rest)
        return self._typed["plans"][name]

    def settings(self) -> Any:
        if self._typed["settings"] is None:
            from doflow.config import cache as packing
            from doflow.flow import model

            self._typed["settings"] = packing.typed(self._cached("settings"), vars(model))
        return self._typed["settings"]

    @property
    def layout(self) -> str:
        """The folder that runs are kept in."""
        return str(self.settings().layout)

    def packed(self) -> dict[str, bytes]:
        """All of it as the cache keeps it: each part read only by who needs it."""
        from doflow.config.cache import bare, plain

        parts = {
            "settings": plain(self.settings()),
            "flows": {name: plain(self.flow(name)) for name in self.about},
            "plans": {name: bare(self.plan(name)) for name in self.about},
        }
        return {name: marshal.dumps(part) for name, part in parts.items()}

    def complete(self, rest: dict[str, Any], typed: dict[str, Any]) -> None:
        """Add flows that were read later."""
        for name in ("about", "params", "broken"):
            self.values[name].update(rest[name])
        for name in ("flows", "plans"):
            self._typed[name].update(typed[name])
        self.sources = tuple(dict.fromkeys([*self.sources, *rest["sources"]]))

    def _cached(self, part: str) -> Any:
        return marshal.loads(self.values["packed"][part])


def find(start: str | None = None) -> Path:
    return Path(hot.find(start or ""))


def begun(root: Path) -> bool:
    """Has anybody made a project of this folder?"""
    return any((root / name).exists() for name in ("dodo.py", "doflow.yaml"))


def open_(root: Path, environ: Mapping[str, str], words: Sequence[str] = ()) -> Project:
    """From the cache while every source is as it was; else from the YAML files.

    `words`: the command line of a run. The first time, only the flows that it names are read before the first step.
    """
    values = _cached(root, environ)
    if values is not None:
        return Project(root, values, {"settings": None, "flows": {}, "plans": {}})
    named = _named(root, words)
    if named:  # a run: what starts its programs gets ready while the flows are read
        bundle.use()
        from doflow.util.process import runner as process

        process.warm()
    return Project(root, *_read(root, environ, named))


def _named(root: Path, words: Sequence[str]) -> list[str]:
    if not words or (words[0] in reserved_names.COMMANDS and words[0] != "run"):
        return []
    stems = dict.fromkeys(word.partition(":")[0] for word in words if not word.startswith("-"))
    return [stem for stem in stems if stem and "/" not in stem and (root / "flows" / f"{stem}.yaml").is_file()]


def keep(project: Project, environ: Mapping[str, str]) -> None:
    """Write the cache; only a run that has begun does, so that a refusal leaves nothing behind."""
    values = project.values
    if values.get("cached") or values["broken"] or not project.unchanged():
        return
    if values["partial"]:
        _complete(project, environ)
        if values["broken"]:
            return
    signs = [(name, _sign(name)) for name in project.sources]
    index = {name: values[name] for name in ("about", "params", "broken")}
    stored = {
        **index, "sources": list(project.sources), "signs": signs, "for": _for(project.root, environ), "cached": True,
        "packed": project.packed(),
    }  # fmt: skip
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
    from doflow.flow.parsing import loader as load

    others = [name for name in load.names(project.root) if name not in project.about and name not in project.broken]
    project.values["partial"] = False
    if others:
        project.complete(*_read(project.root, environ, others))


def prepare(root: Path) -> None:
    """The state folder, which keeps itself out of git."""
    from doflow.util import atomic_files as files

    folder = root / STATE
    ignore = folder / ".gitignore"
    if not ignore.exists():
        folder.mkdir(exist_ok=True)
        files.write(ignore, b"*\n", sync=False)


def _cached(root: Path, environ: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        with open(root / STATE / _CACHE, "rb") as stream:
            values = marshal.load(stream)
        if values["for"] != _for(root, environ):
            return None
        if any(_sign(name) != sign for name, sign in values["signs"]):
            return None
    except (OSError, ValueError, EOFError, TypeError, KeyError):
        return None
    return dict(values)


def _read(root: Path, environ: Mapping[str, str], only: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    from doflow.config import settings
    from doflow.flow import plan
    from doflow.flow.parsing import loader as load
    from doflow.util.errors import FlowError

    broken: dict[str, str] = {}
    began = time.time_ns()
    try:
        chosen = settings.load(root, environ)
    except FlowError as error:
        chosen = settings.load(Path(os.devnull), {})
        broken["doflow.yaml"] = str(error)
    found = load.catalogue(root, chosen.command_variant, only)
    broken |= {name: str(error) for name, error in found.broken.items()}
    dots = _pipelines(root, chosen, found.flows, broken) if chosen.pipelines else ()
    flows = {name: _inlined(flow, found.flows, chosen) for name, flow in found.flows.items()}
    plans = {name: plan.build(flow, chosen) for name, flow in flows.items()}
    values = {
        "partial": bool(only),
        "read_at": began,
        "about": {name: flow.about for name, flow in found.flows.items()},
        "params": {
            name: [(p.name, p.about, p.required, p.default) for p in flow.params] for name, flow in found.flows.items()
        },
        "broken": broken,
        "sources": [*found.sources, *settings.sources(root), *dots],
    }
    return values, {"settings": chosen, "flows": flows, "plans": plans}


def _inlined(flow: Any, known: Mapping[str, Any], chosen: Any) -> Any:
    if not any(step.kind == "flow" for step in flow.steps):
        return flow
    from doflow.flow import subflow

    return subflow.inline(flow, known, chosen.gates)


def _pipelines(root: Path, chosen: Any, flows: dict[str, Any], broken: dict[str, str]) -> list[str]:
    """The DOT pipelines that the settings name, added to the flows; gives their files."""
    from doflow.config import dot_flows as catalogue
    from doflow.util.errors import FlowError

    for name, made in catalogue.flows(root, chosen.pipelines, {*flows, *broken}):
        if isinstance(made, FlowError):
            broken[name] = str(made)
            flows.pop(name, None)
        else:
            flows[name] = made
    return [str(root / path.lstrip("/")) for _, path in chosen.pipelines]


def _sign(name: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _for(root: Path, environ: Mapping[str, str]) -> list[Any]:
    """Who wrote the cache, where, and under which overrides: another doflow, or a copy, reads the flows itself."""
    return [str(root), VERSION, *hot.myself(), hot.overrides(dict(environ))]
