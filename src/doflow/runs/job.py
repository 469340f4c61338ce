"""A job: one thing for an agent or a command to do, with its key, its paths and its limits settled."""

from __future__ import annotations

from doflow.flow.markdown import Phase
from doflow.flow.model import BY_AGENT, Step
from doflow.runs.state.fingerprint import Key
from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A step, or one phase of one. `makes` are paths from the project's root; `writes` None = everything unprotected.

    `of`: how many phases there are."""

    step: Step
    key: Key
    makes: tuple[str, ...] = ()
    writes: tuple[str, ...] | None = ()
    phase: Phase | None = None
    last: bool = False
    subject: str = ""
    mends: frozenset[str] = frozenset()
    of: int = 0

    @property
    def name(self) -> str:
        return f"{self.step.id}:{self.phase.number}" if self.phase else self.step.id

    @property
    def where(self) -> dict[str, str]:
        """How entries of the ledger name it."""
        return {"step": self.step.id, "phase": self.phase.number} if self.phase else {"step": self.step.id}

    @property
    def commits(self) -> bool:
        return bool(self.makes) or self.phase is not None

    @property
    def paid(self) -> bool:
        """An agent does it: its start is on disk before it is called."""
        return self.step.kind in BY_AGENT

    @property
    def watched(self) -> bool:
        """Its files are compared before and after: an agent may touch them, or the flow says what a command may."""
        asked = self.step.kind == "shell" and (self.step.writes is not None or bool(self.step.protect))
        return self.paid or self.step.repair > 0 or asked
