"""Where the programs of a job run, and where doflow writes for it: the project itself, or a workspace."""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from doflow.util import atomic_files
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result, Tick, Timeout


@dataclass(frozen=True, slots=True)
class ProgramNeeds:
    """`keep`: what a program writes is part of the job's result. `writable`: folders outside the project that it needs.
    `sandboxed`: a sandbox inside the place limits it further."""

    keep: bool = True
    writable: tuple[str, ...] = ()
    sandboxed: bool = False


WRITES = ProgramNeeds()


class Place(Protocol):
    """Where the programs of a job run."""

    def entered(self, command: Command, needs: ProgramNeeds) -> AbstractContextManager[Command]:
        """The command that runs a program here; it has ended when the block is left."""

    def run(
        self, command: Command, out: str, err: str, timeout: Timeout, tick: Tick | None = None,
        needs: ProgramNeeds = WRITES,
    ) -> Result:  # fmt: skip
        """Run a program to its end."""

    def make_folder(self, path: str) -> None:
        """Create a folder of the project (from its root) for the job."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the project (from its root) for the job."""


class InPlace:
    """The project's own working tree."""

    def __init__(self, root: str = "") -> None:
        self.root = root

    def run(
        self, command: Command, out: str, err: str, timeout: Timeout, tick: Tick | None = None,
        needs: ProgramNeeds = WRITES,
    ) -> Result:  # fmt: skip
        return runner.run(command, out, err, timeout, tick)

    def entered(self, command: Command, needs: ProgramNeeds) -> AbstractContextManager[Command]:
        return nullcontext(command)

    def make_folder(self, path: str) -> None:
        os.makedirs(os.path.join(self.root, path), exist_ok=True)

    def write(self, path: str, data: bytes) -> None:
        self.make_folder(os.path.dirname(path))
        place = os.path.join(self.root, path)
        mode = stat.S_IMODE(os.stat(place).st_mode) if os.path.isfile(place) else 0o644
        atomic_files.write_file(place, data, mode)
