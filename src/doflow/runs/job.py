"""Job: one unit of work for an agent or a command, with its key, paths and limits."""

from __future__ import annotations

from dataclasses import dataclass

from doflow.flow.markdown import Phase
from doflow.flow.model import BY_AGENT, Step
from doflow.runs.fingerprint import Key


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
    repairs: frozenset[str] = frozenset()
    of: int = 0

    @property
    def name(self) -> str:
        return f"{self.step.id}:{self.phase.number}" if self.phase else self.step.id

    @property
    def where(self) -> dict[str, str]:
        """How event log entries name it."""
        return {"step": self.step.id, "phase": self.phase.number} if self.phase else {"step": self.step.id}

    @property
    def commits(self) -> bool:
        return bool(self.makes) or self.phase is not None

    @property
    def paid(self) -> bool:
        """Whether an agent does it; its start is synced to disk before the call."""
        return self.step.kind in BY_AGENT

    @property
    def watched(self) -> bool:
        """Whether files are compared before and after: for agents, and for commands whose flow limits what they may write."""
        asked = self.step.kind == "shell" and (self.step.writes is not None or bool(self.step.protect))
        return self.paid or self.step.repair > 0 or asked
