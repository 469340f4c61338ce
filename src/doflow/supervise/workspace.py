"""Where a supervised pipeline lives: its DOT file, its signals, its tmux server, and the folder of what its nodes went through.

.doflow/guardian/<pipeline>/events.jsonl · guardian.lock · nodes/<node>/{node.json, runner.lock, seats/<n>/, …}
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from doflow.flow.model import Profile, Settings
from doflow.supervise.panes import tmux
from doflow.supervise.panes.tmux import Tmux
from doflow.supervise.signals.store import Store
from doflow.util import atomic_files as files
from doflow.util.errors import LockHeld, UsageError
from doflow.util.records import dataclass, regex

FOLDER = os.path.join(".doflow", "guardian")
NAMELESS = "_"
_NOT_NAME = regex(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """One pipeline of one project; `dot` '' = the tools are used without a pipeline."""

    root: str
    pipeline: str
    dot: str
    settings: Settings
    store: Store
    tmux: Tmux
    base: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(self.root, FOLDER, self.pipeline or NAMELESS)

    def node(self, name: str, *more: str) -> str:
        """The folder of a node, or something in it."""
        return os.path.join(self.folder, "nodes", _NOT_NAME.sub("_", name), *more)

    def note(self, layer: str, event: str, **more: object) -> None:
        """A line in the pipeline's diary."""
        entry = {"at": now(), "layer": layer, "event": event, **more}
        os.makedirs(self.folder, exist_ok=True)
        with suppress(OSError):
            files.append(os.path.join(self.folder, "events.jsonl"), (json.dumps(entry) + "\n").encode())


def find(root: str, settings: Settings, environ: Mapping[str, str], pipeline: str = "", signals: str = "") -> Place:
    """The place of a pipeline by its file (`flow.dot`) or by the name it was begun under."""
    dot = _dot(root, settings, pipeline) if pipeline else ""
    name = _NOT_NAME.sub("-", os.path.basename(pipeline).removesuffix(".dot").removesuffix(".gv")) if pipeline else ""
    base = signals or environ.get("DOFLOW_SIGNALS") or os.path.join(root, settings.supervision.signals)
    folder = os.path.join(os.path.abspath(base), name) if name else os.path.abspath(base)
    real = os.path.realpath(root)
    server = Tmux(tmux.socket_of(real, name, environ), os.path.join(real, FOLDER, name or NAMELESS))
    return Place(real, name, dot, settings, Store(folder, name), server, os.path.abspath(base))


def _dot(root: str, settings: Settings, pipeline: str) -> str:
    """The file of a pipeline: a path, a name of doflow.yaml, a name it was begun under; '' = none is known."""
    named = dict(settings.pipelines).get(pipeline, "")
    for path in (pipeline, os.path.join(root, pipeline), os.path.join(root, named)):
        if path.endswith((".dot", ".gv")) and os.path.isfile(path):
            return os.path.realpath(path)
    known = load(os.path.join(root, FOLDER, os.path.basename(pipeline), "pipeline.json"))
    return str(known.get("dot", "")) if os.path.isfile(str(known.get("dot", ""))) else ""


def begin(place: Place) -> None:
    """Keep which file this pipeline is; another file under the same name is refused."""
    path = os.path.join(place.folder, "pipeline.json")
    known = load(path).get("dot", "")
    if known and known != place.dot and os.path.isfile(str(known)):
        raise UsageError(
            f"the name {place.pipeline} is taken by {known}",
            f"give {place.dot} another file name, or remove {place.folder}",
        )
    prepare(place.root)
    os.makedirs(place.folder, exist_ok=True)
    save(path, {"dot": place.dot, "pipeline": place.pipeline})
    place.store.prepare()


def prepare(root: str) -> None:
    """The state folder, which keeps itself out of git."""
    folder = os.path.join(root, ".doflow")
    if not os.path.exists(os.path.join(folder, ".gitignore")):
        os.makedirs(folder, exist_ok=True)
        files.write(os.path.join(folder, ".gitignore"), b"*\n", sync=False)


@contextmanager
def held(path: str, words: str, hint: str = "") -> Iterator[None]:
    """Hold a lock for as long as this process does something; the kernel gives it back however we end."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.pread(fd, 100, 0).decode("utf-8", "replace").strip()
            hint = hint or f"wait for it, or stop it (kill {who or 'its pid'}), then run again"
            raise LockHeld(f"{words} already (pid {who or 'unknown'})", hint) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def holder(path: str) -> int:
    """The process that holds this lock; 0 = nobody does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return 0
    except OSError:
        said = os.pread(fd, 100, 0).decode("utf-8", "replace").strip()
        return int(said) if said.isdecimal() else -1
    finally:
        os.close(fd)


def load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(path: str, value: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write(path, (json.dumps(value, indent=1) + "\n").encode())


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def profile(settings: Settings, name: str, why: str) -> Profile:
    """A profile by its name; an unknown one is an error in words."""
    from doflow.agents import registry

    found = settings.profile(name)
    if found is None and name in registry.KNOWN:
        return Profile(name, name)
    if found is None:
        known = ", ".join(one.name for one in settings.agents)
        raise UsageError(
            f"{why} wants the agent {name!r}, which doflow.yaml does not have (it has: {known})", "doflow config"
        )
    return found
