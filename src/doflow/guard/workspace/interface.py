"""What a workspace does for the engine, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from doflow.flow.model import Outcome
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job


class Changed(Protocol):
    """A path that a job has changed."""

    @property
    def path(self) -> str: ...


class Workspace(Protocol):
    """One per run; called with the lock of the run's context held."""

    def kind_of(self, job: Job) -> str:
        """The kind of workspace that a job gets."""

    def watches(self, job: Job) -> bool:
        """Whether the job gets a workspace."""

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> None:
        """Open it. `entry`: what the job has returned already."""

    def see(self, job: Job) -> RunContext:
        """The run as the programs of the job see it."""

    def look(self, job: Job) -> tuple[Sequence[Changed], tuple[str, ...]]:
        """The job's own changes so far, and the paths outside its scope, which are reverted and in quarantine."""

    def keep(self, job: Job) -> None:
        """What the job has made so far is what an interrupted next call is reverted to."""

    def back(self, job: Job) -> tuple[str, ...]:
        """Revert to what was kept; returns the paths that differed, which are in quarantine."""

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Revert everything; returns the paths, which are in quarantine."""

    def command_begins(self, job: Job, check: bool) -> None:
        """A command of the flow is running for the job, and no agent."""

    def command_ended(self, job: Job) -> None: ...

    def take_over(self, job: Job) -> Outcome | None:
        """Bring the accepted result into the project; None = it is there."""

    def leave(self, job: Job) -> None:
        """No program of the job runs any more."""

    def abandon(self, job: Job) -> None:
        """The job was interrupted; the next start takes care of what it left."""

    def beside(self, job: Job) -> tuple[str, ...]:
        """The jobs that a stray change may come from as well."""

    def work(self, job: Job) -> str:
        """The commit that holds the working tree from before the job, '' = none is needed."""

    def layers(self, job: Job) -> int:
        """How many layers hold what the job has made, 0 = it is in the working tree."""

    def recover(self) -> tuple[str, ...]:
        """After a killed process: finish what was being written; returns the jobs it left."""
