"""What a command line asks of a run beyond naming it, and which of it the command that goes on needs again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Of one command."""

    next: bool = False
    force: frozenset[str] = frozenset()
    completed: frozenset[str] = frozenset()
    reopen: bool = False
    auto_approve: bool = False
    agent: str = ""
    budget: str = ""
    record: bool = False

    @property
    def lasting(self) -> dict[str, Any]:
        """What holds for the run and not for this command alone."""
        return {"agent": self.agent, "budget": self.budget, "record": self.record}


def words(lasting: Mapping[str, Any]) -> str:
    """As they are typed behind a command: ` --agent=rehearsal`; '' = none."""
    agent, budget = lasting.get("agent"), lasting.get("budget")
    found = (f" --agent={agent}" if agent else "", f" --budget={budget}" if budget else "")
    return "".join(found) + (" --record" if lasting.get("record") else "")
