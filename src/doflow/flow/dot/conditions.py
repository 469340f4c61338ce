"""Conditions of edges: `pass`, `outcome=success && context.tests=green`, `preferred_label!=Fix`; parsed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

PASS, FAIL, PARTIAL = "pass", "fail", "partial"
OUTCOME, LABEL, OUTPUT = "outcome", "preferred_label", "tool.output"
OUTCOME_WORDS = {
    PASS: ("pass", "passed", "success", "succeeded", "ok", "yes", "true", "approve", "approved"),
    FAIL: ("fail", "failed", "failure", "error", "no", "false", "reject", "rejected"),
    PARTIAL: ("partial", "partial_success"),
}
_WORDS = {word: outcome for outcome, words in OUTCOME_WORDS.items() for word in words}
_KEYS = {"outcome": OUTCOME, "status": OUTCOME, "last_status": OUTCOME, "preferred_label": LABEL,
         "preferred_next_label": LABEL}  # fmt: skip
_CLAUSE = re.compile(r"(!?)\s*\$?([A-Za-z_][\w.-]*)\s*(?:(!=|==?|\bcontains\b)\s*(.*))?", re.DOTALL)
_ACCELERATOR = re.compile(r"\[(\w+)\]\s*|(\w)\)\s+|(\w)\s+-\s+")


@dataclass(frozen=True, slots=True)
class Clause:
    """`key op value`; `op`: `=`, `!=`, `contains`, or `set` (the key has a value). `negated`: it must not hold."""

    key: str
    op: str
    value: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """It holds if all clauses of one of the alternatives hold."""

    text: str
    any_of: tuple[tuple[Clause, ...], ...]

    def named_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(clause.key for clauses in self.any_of for clause in clauses))


class InvalidCondition(ValueError):
    """A condition that cannot be evaluated; its text says why."""


def parse_condition(text: str) -> Condition:
    """The condition of an edge; InvalidCondition if it isn't one."""
    alternatives = tuple(tuple(_clause(part) for part in one.split("&&")) for one in text.split("||"))
    return Condition(text, alternatives)


def canonical_outcome(word: str) -> str:
    """The outcome that a word stands for: pass, fail, partial, or the word itself."""
    bare = word.strip().lower()
    return _WORDS.get(bare, bare)


def canonical_label(label: str) -> str:
    """A label as it is compared: lower case, without its accelerator key (`[A] Approve`, `A) Approve`, `A - Approve`)."""
    bare = label.strip()
    found = _ACCELERATOR.match(bare)
    return " ".join((bare[found.end() :] if found else bare).lower().split())


def accelerator(label: str) -> str:
    """The key of a label in lower case; '' = it has none."""
    found = _ACCELERATOR.match(label.strip())
    return next((one.lower() for one in found.groups() if one), "") if found else ""


def _clause(text: str) -> Clause:
    bare = text.strip()
    if bare.lower() in _WORDS and "=" not in bare:
        return Clause(OUTCOME, "=", _WORDS[bare.lower()])
    found = _CLAUSE.fullmatch(bare)
    if (
        not found
        or (not found[3] and not found[2].startswith("context."))
        or any(sign in (found[4] or "") for sign in "<>=")
    ):
        raise InvalidCondition(
            f"{bare!r} is not of the form key=value or key!=value" if bare else "it has an empty part"
        )
    name, op, value = found[2], found[3] or "set", (found[4] or "").strip().strip("'\"")
    key = _KEYS.get(name, name.removeprefix("context."))
    if key == OUTCOME:
        value = canonical_outcome(value)
    elif key == LABEL:
        value = canonical_label(value)
    return Clause(key, "=" if op == "==" else op, value, bool(found[1]))
