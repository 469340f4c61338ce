"""How far a review is: replayed from what the ledger heard, so that no reviewer who has answered is asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doflow.flow import findings
from doflow.flow.findings import Answer, Finding
from doflow.util.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Progress:
    """Round `round` of material `of`; `answers` given in it so far; `known` findings before it.

    `stuck`: the fixer left the material as it was, so that another round would hear the same."""

    round: int
    of: str
    answers: tuple[Answer, ...] = ()
    known: tuple[Finding, ...] = ()
    fix: str = ""
    seen: tuple[frozenset[str], ...] = ()
    stuck: bool = False


def replay(step: str, entries: Sequence[Mapping[str, Any]]) -> Progress | None:
    """Where a review stands, and of which material; None = it has not begun."""
    if not entries or entries[0]["event"] != "review_started":
        return None
    now = Progress(1, entries[0]["of"])
    for entry in entries[1:]:
        if entry["event"] == "review_answer" and entry["round"] == now.round and entry["of"] == now.of:
            now = replace(now, answers=(*now.answers, findings.typed(dict(entry))))
        elif entry["event"] == "review_voided" and entry["round"] == now.round and entry["of"] == now.of:
            now = replace(now, answers=tuple(one for one in now.answers if one.persona not in entry["personas"]))
        elif entry["event"] == "review_fixed" and entry["of"] == now.of:
            same = entry["after"] == now.of
            now = replace(now, stuck=True) if same else advance(step, now, entry["after"], entry.get("commit", ""))
    return now


def merged(step: str, now: Progress) -> tuple[Finding, ...]:
    return findings.merge(step, now.known, now.answers, now.round)


def advance(step: str, now: Progress, of: str, commit: str) -> Progress:
    """The next round, of the material as the fixer left it."""
    known = merged(step, now)
    open_ = frozenset(found.id for found in findings.blocking(known))
    return Progress(now.round + 1, of, (), known, commit, (*now.seen, open_))


def over(step: str, now: Progress, rounds: int) -> bool:
    """No blocking finding is open, the same set came twice, nothing was mended, or the rounds are used up."""
    open_ = frozenset(found.id for found in findings.blocking(merged(step, now)))
    return not open_ or now.stuck or now.round >= rounds or open_ in now.seen
