"""Runs the programs of a job in its view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from doflow.runs.place import WRITES, ProgramNeeds
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result, Tick, Timeout

if TYPE_CHECKING:
    from doflow.guard.workspace.layered import LayeredWorkspace, OpenJob


class JobPlace:
    """Runs the programs of a job in its view."""

    def __init__(self, workspace: LayeredWorkspace, found: OpenJob) -> None:
        self._workspace = workspace
        self._found = found

    def run(
        self, command: Command, out: str, err: str, timeout: Timeout, tick: Tick | None = None,
        needs: ProgramNeeds = WRITES,
    ) -> Result:  # fmt: skip
        with self.entered(command, needs) as wrapped:
            return runner.run(wrapped, out, err, timeout, tick)

    @contextmanager
    def entered(self, command: Command, needs: ProgramNeeds) -> Iterator[Command]:
        layer, wrapped = self._workspace.open_layer(self._found, command, needs)
        try:
            yield wrapped
        finally:
            self._workspace.close_layer(self._found, layer, needs)

    def make_folder(self, path: str) -> None:
        self._workspace.make_folder(self._found, path)

    def write(self, path: str, data: bytes) -> None:
        self._workspace.write(self._found, path, data)
