"""The settings of supervision, as one noun."""

from __future__ import annotations

from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Supervision:
    """How pipelines are supervised. `answers`: (what a question holds, what is answered)."""

    signals: str = ".claude/attractor/signals"
    parallel: int = 3
    retries: int = 3
    stuck: float = 300.0
    validate: tuple[str, ...] = ()
    reviewer: str = ""
    judge: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    style: str = "orchestrator"
    keep_days: int = 14
