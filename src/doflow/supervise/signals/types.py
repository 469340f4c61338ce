"""The fourteen kinds of signal: who may send each to whom, and what it carries. One value per signal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from doflow.util.errors import DoflowError
from doflow.util.records import dataclass, field

RUNNER, GUARDIAN, TERMINAL = "runner", "guardian", "terminal"
LAYERS = (RUNNER, GUARDIAN, TERMINAL)

#: kind → (source, target, what its payload holds); the schema `signal` says the same with types
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "NEEDS_REVIEW": (RUNNER, GUARDIAN, ("node_id", "evidence_path", "commit_hash")),
    "NEEDS_INPUT": (RUNNER, GUARDIAN, ("node_id", "question_text", "options")),
    "VIOLATION": (RUNNER, GUARDIAN, ("node_id", "violation_type", "evidence")),
    "ORCHESTRATOR_STUCK": (RUNNER, GUARDIAN, ("node_id", "last_output", "duration_seconds")),
    "ORCHESTRATOR_CRASHED": (RUNNER, GUARDIAN, ("node_id", "last_output", "exit_code")),
    "NODE_COMPLETE": (RUNNER, GUARDIAN, ("node_id", "commit_hash", "summary")),
    "VALIDATION_PASSED": (GUARDIAN, RUNNER, ("node_id", "new_status")),
    "VALIDATION_FAILED": (GUARDIAN, RUNNER, ("node_id", "feedback", "retry_count")),
    "INPUT_RESPONSE": (GUARDIAN, RUNNER, ("node_id", "response_text")),
    "KILL_ORCHESTRATOR": (GUARDIAN, RUNNER, ("node_id", "reason")),
    "GUIDANCE": (GUARDIAN, RUNNER, ("node_id", "message")),
    "PIPELINE_COMPLETE": (GUARDIAN, TERMINAL, ("pipeline_id", "summary")),
    "ESCALATION": (GUARDIAN, TERMINAL, ("pipeline_id", "issue", "options")),
    "GUARDIAN_ERROR": (GUARDIAN, TERMINAL, ("pipeline_id", "error", "stack_trace")),
}


class BadSignal(DoflowError):
    """A signal that nobody may write, or a file that is none."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal. `unique` ends its file's name; `reply` names what it answers, so that nothing is answered twice."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = ""
    source: str = ""
    target: str = ""
    at: str = ""
    unique: str = ""
    reply: str = ""
    attempt: int = 0
    path: str = ""

    @property
    def node(self) -> str:
        return str(self.payload.get("node_id", ""))

    @property
    def token(self) -> str:
        """What an answer to it calls it by: never empty, and short enough for a file's name."""
        return self.unique.partition("-re-")[0] or os.path.basename(self.path).removesuffix(".json")


def plain(signal: Signal) -> dict[str, Any]:
    """As it stands in its file."""
    said: dict[str, Any] = {
        "source": signal.source, "target": signal.target, "signal_type": signal.kind, "timestamp": signal.at,
        "pipeline": signal.pipeline, "id": signal.unique, "pid": os.getpid(), "payload": dict(signal.payload),
    }  # fmt: skip
    return (
        said
        | ({"reply_to": signal.reply} if signal.reply else {})
        | ({"attempt": signal.attempt} if signal.attempt else {})
    )


def addressed(signal: Signal) -> tuple[str, str]:
    """From whom to whom, as its kind says; refuses an unknown kind and a wrong direction."""
    if signal.kind not in KINDS:
        import difflib

        near = difflib.get_close_matches(signal.kind.upper(), KINDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the kinds are: {', '.join(KINDS)}"
        raise BadSignal(f"there is no signal {signal.kind!r}", hint)
    source, target, _ = KINDS[signal.kind]
    if (signal.source or source, signal.target or target) != (source, target):
        raise BadSignal(
            f"{signal.kind} goes from {source} to {target}, not from {signal.source} to {signal.target}",
            f"signals from {signal.source}: {', '.join(sent_by(signal.source)) or 'none'}",
        )
    return source, target


def sent_by(source: str) -> tuple[str, ...]:
    return tuple(kind for kind, (sender, _, _) in KINDS.items() if sender == source)


def check(value: object, where: str) -> None:
    """Does the content of a file fit the schema of its kind? Raises with every fault."""
    from doflow.flow.parsing import schema

    found = schema.faults(value, "signal")
    if found:
        words = "; ".join(
            f"{'.'.join(str(part) for part in fault.path) or 'signal'}: {fault.message}" for fault in found
        )
        raise BadSignal(f"{where}: {words}", "doflow signal --help lists what each kind carries")


def parsed(value: Mapping[str, Any], unique: str, path: str) -> Signal:
    return Signal(
        value["signal_type"], value["payload"], value.get("pipeline", ""), value["source"], value["target"],
        value["timestamp"], unique, value.get("reply_to", ""), value.get("attempt", 0), path,
    )  # fmt: skip
