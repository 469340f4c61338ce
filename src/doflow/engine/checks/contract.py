"""What every check offers: `check(step, paths, world) -> str`, '' = holds, else what is wrong, for the agent to mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from doflow.flow.model import Step
from doflow.runs.context import World


class Checker(Protocol):
    """A module with this one function."""

    def check(self, step: Step, paths: Sequence[str], world: World) -> str: ...
