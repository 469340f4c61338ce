"""Where workspaces are kept: outside the project, so that no agent reaches them, by project, run and job.

$XDG_STATE_HOME/doflow/PROJECT/RUN/kept/          ignored files that the run's programs wrote (installed packages, caches)
$XDG_STATE_HOME/doflow/PROJECT/RUN/jobs/JOB/      opened.json, given/ (uncommitted files of the person), layers/1/, layers/2/ …
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from doflow.guard.workspace import layer_edits
from doflow.util import atomic_files

_OPENED, _APPLYING = "opened.json", "applying.json"


def state_home(environ: Mapping[str, str]) -> str:
    """The folder for doflow's state of this user; `~/.local/state/doflow` by default."""
    said = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(said if os.path.isabs(said) else os.path.join(home, ".local", "state"), "doflow")


def project_folder(root: str | os.PathLike[str], environ: Mapping[str, str]) -> str:
    """The folder for what doflow keeps about one project."""
    real = os.path.realpath(root)
    name = "".join(char if char.isalnum() or char in "-_." else "-" for char in os.path.basename(real))[:40]
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return os.path.join(state_home(environ), f"{name}-{digest}")


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of the project when a job was opened: `at` is a time of the kernel's clock, in nanoseconds. `top`: the folder
    that the view covers."""

    head: str
    branch: str
    top: str
    at: int = 0


class RunStorage:
    """The workspaces of one run."""

    def __init__(self, project: str, run: str) -> None:
        self.folder = os.path.join(project, run.replace("/", "."))
        self.kept = os.path.join(self.folder, "kept")

    def job(self, name: str) -> JobStorage:
        return JobStorage(os.path.join(self.folder, "jobs", name.replace("/", ".").replace(":", ".")), name)

    def jobs(self) -> list[JobStorage]:
        """The jobs that have a workspace."""
        folder = os.path.join(self.folder, "jobs")
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        found = [JobStorage(os.path.join(folder, name)) for name in names]
        return [job for job in found if job.exists]

    def remove(self) -> None:
        layer_edits.remove_tree(self.folder)


class JobStorage:
    """The workspace of one job on disk."""

    def __init__(self, folder: str, name: str = "") -> None:
        self.folder = folder
        self.given = os.path.join(folder, "given")
        self.staged = os.path.join(folder, "staged")
        self._name = name

    @property
    def exists(self) -> bool:
        return os.path.exists(os.path.join(self.folder, _OPENED))

    @property
    def name(self) -> str:
        return self._name or str(self._read(_OPENED)["job"])

    def create(self, opened: Opened) -> Opened:
        """Start with no layer; what was there before is removed."""
        self.remove()
        os.makedirs(self.folder, mode=0o700)
        self._write(_OPENED, {"job": self._name, **asdict(opened)})
        return self.opened()

    def opened(self) -> Opened:
        """`at` is the time of the file itself: the same clock that the project's files have."""
        found = self._read(_OPENED)
        at = os.stat(os.path.join(self.folder, _OPENED)).st_ctime_ns
        return Opened(found["head"], found["branch"], found["top"], at)

    def layers(self) -> list[str]:
        """The layers with what programs wrote, lowest first."""
        found = (os.path.join(self.folder, "layers", name, "upper") for name in self._numbers())
        return [layer for layer in found if os.path.isdir(layer)]  # it may have been killed while making one

    def new_layer(self) -> tuple[str, str]:
        """A new layer over the others: its content, and a folder that the overlay needs."""
        number = int((self._numbers() or ["0"])[-1]) + 1
        return self._layer(f"{number}")

    def passing_layer(self) -> tuple[str, str]:
        """A layer whose content is not part of the job's result."""
        return self._layer(f"passing-{os.urandom(6).hex()}")

    def _layer(self, name: str) -> tuple[str, str]:
        place = os.path.join(self.folder, "layers", name)
        for part in ("upper", "work"):
            os.makedirs(os.path.join(place, part))
        return os.path.join(place, "upper"), os.path.join(place, "work")

    def _numbers(self) -> list[str]:
        try:
            names = os.listdir(os.path.join(self.folder, "layers"))
        except FileNotFoundError:
            return []
        return sorted((name for name in names if name.isdecimal()), key=int)

    def drop(self, count: int) -> None:
        """Remove all layers but the lowest `count`."""
        for layer in self.layers()[count:]:
            layer_edits.remove_tree(os.path.dirname(layer))

    def remove(self) -> None:
        layer_edits.remove_tree(self.folder)

    def make_reachable(self) -> None:
        """Give ourselves access to all that the programs wrote."""
        for layer in self.layers():
            layer_edits.make_reachable(layer)

    # the intent: which files are being written to the project

    def begin_applying(self, intent: Mapping[str, Any]) -> None:
        self._write(_APPLYING, intent)

    def applying(self) -> dict[str, Any] | None:
        """What was being written when the process ended; None = it was not at that point."""
        try:
            return self._read(_APPLYING)
        except FileNotFoundError:
            return None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        atomic_files.write_file(
            os.path.join(self.folder, name), json.dumps(value).encode("utf-8", "surrogateescape"), mode=0o600
        )

    def _read(self, name: str) -> dict[str, Any]:
        found = json.loads(Path(self.folder, name).read_text("utf-8", "surrogateescape"))
        assert isinstance(found, dict)
        return found
