"""The context of a supervised pipeline: its DOT file, signals, tmux server, and the state folder of its nodes.

.doflow/guardian/<pipeline>/events.jsonl · guardian.lock · nodes/<node>/{node.json, runner.lock, seats/<n>/, …}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from doflow.agents import registry
from doflow.flow.model import Profile, Settings
from doflow.supervise.panes import tmux
from doflow.supervise.panes.tmux import Tmux
from doflow.supervise.signal_store import SignalStore
from doflow.util import atomic_files, locks, state_folder, timestamps
from doflow.util.errors import LockHeld, UsageError

NAMELESS = "_"
_NOT_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class PipelineContext:
    """One pipeline of a project; `dot` '' = the tools are used without a pipeline."""

    root: str
    pipeline: str
    dot: str
    settings: Settings
    store: SignalStore
    tmux: Tmux
    base: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(self.root, state_folder.GUARDIAN, self.pipeline or NAMELESS)

    def node(self, name: str, *more: str) -> str:
        """The folder of a node, or a path in it."""
        return os.path.join(self.folder, "nodes", _NOT_NAME.sub("_", name), *more)

    def note(self, layer: str, event: str, **more: object) -> None:
        """Append an event to the pipeline's events.jsonl."""
        entry = {"at": timestamps.format_microseconds(), "layer": layer, "event": event, **more}
        os.makedirs(self.folder, exist_ok=True)
        with suppress(OSError):
            atomic_files.append_to_file(os.path.join(self.folder, "events.jsonl"), (json.dumps(entry) + "\n").encode())


def find_context(
    root: str, settings: Settings, environ: Mapping[str, str], pipeline: str = "", signals: str = ""
) -> PipelineContext:
    """The context of a pipeline, by its file (`flow.dot`) or the name it was started with."""
    dot = _dot(root, settings, pipeline) if pipeline else ""
    name = _NOT_NAME.sub("-", os.path.basename(pipeline).removesuffix(".dot").removesuffix(".gv"))
    base = signals or environ.get("DOFLOW_SIGNALS") or os.path.join(root, settings.supervision.signals)
    base, real = os.path.abspath(base), os.path.realpath(root)
    store = SignalStore(os.path.join(base, name) if name else base, name)
    server = Tmux(tmux.socket_name(real, name, environ), os.path.join(real, state_folder.GUARDIAN, name or NAMELESS))
    return PipelineContext(real, name, dot, settings, store, server, base)


def _dot(root: str, settings: Settings, pipeline: str) -> str:
    """The file of a pipeline: by path, by its name in doflow.yaml, or by the name it was started with; '' = unknown."""
    named = dict(settings.pipelines).get(pipeline, "")
    for path in (pipeline, os.path.join(root, pipeline), os.path.join(root, named)):
        if path.endswith((".dot", ".gv")) and os.path.isfile(path):
            return os.path.realpath(path)
    known = load(os.path.join(root, state_folder.GUARDIAN, os.path.basename(pipeline), "pipeline.json"))
    return str(known.get("dot", "")) if os.path.isfile(str(known.get("dot", ""))) else ""


def register(context: PipelineContext) -> None:
    """Record the file of this pipeline; refuse another file with the same name."""
    path = os.path.join(context.folder, "pipeline.json")
    known = load(path).get("dot", "")
    if known and known != context.dot and os.path.isfile(str(known)):
        hint = f"rename {context.dot}, or remove {context.folder}"
        raise UsageError(f"the name {context.pipeline} is already used by {known}", hint)
    state_folder.create(context.root)
    os.makedirs(context.folder, exist_ok=True)
    save(path, {"dot": context.dot, "pipeline": context.pipeline})
    context.store.prepare()


@contextmanager
def held(path: str, words: str, hint: str = "") -> Iterator[None]:
    """Hold a lock for as long as this process does something; the kernel gives it back however we end."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = locks.lock_file(path)
    if fd < 0:
        pid = locks.read_pid(path)
        hint = hint or f"wait for it, or stop it (kill {pid or 'its pid'}), then run again"
        raise LockHeld(f"{words} already (pid {pid or 'unknown'})", hint)
    try:
        locks.write_pid(fd)
        yield
    finally:
        os.close(fd)


def load(path: str) -> dict[str, Any]:
    """The JSON object in a file; {} = none, or not readable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(path: str, value: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    atomic_files.write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def find_profile(settings: Settings, name: str, why: str) -> Profile:
    """An agent profile by name; UsageError for an unknown one."""
    found = settings.profile(name)
    if found is None and name in registry.KNOWN:
        return Profile(name, name)
    if found is None:
        known = ", ".join(one.name for one in settings.agents)
        raise UsageError(f"{why}: unknown agent {name!r} (doflow.yaml has: {known})", "doflow config")
    return found
