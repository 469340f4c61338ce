"""Going on in an agent's session: where its CLI can, a reply reaches the agent that still knows what it did.

A reply is a failed check that is handed back, or a person's no to a result. Some CLIs report what a session has used in all
its calls together: what it had used when it was left is kept beside its id, so that each call counts what it used itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doflow.flow.model import Outcome, Usage
from doflow.util.records import dataclass, names


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it was left: its id, and what it had used (None = its CLI counts each call by itself)."""

    id: str
    spent: Usage | None = None


def left(outcome: Outcome) -> Session | None:
    """The session of a call, if it had one; that of an agent who only stood in for another is not gone on in."""
    return Session(outcome.session, outcome.spent) if outcome.session and not outcome.agent else None


def plain(outcome: Outcome) -> dict[str, Any]:
    """What an entry of the ledger says of it."""
    if outcome.spent is None:
        return {"session": outcome.session}
    return {"session": outcome.session, "spent": [getattr(outcome.spent, name) for name in names(Usage)]}


def told(entry: Mapping[str, Any]) -> Session | None:
    """The session that an entry names."""
    if not entry.get("session") or entry.get("agent"):
        return None
    spent = entry.get("spent")
    return Session(entry["session"], Usage(*spent) if isinstance(spent, list) else None)
