"""What every agent offers, and the words they share: variables, artifact paths, reset times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from doflow.flow.model import Ask, Outcome
from doflow.util.process.command import Command, Result

SOONEST = timedelta(minutes=1)
LATEST = timedelta(days=7)
UNSAID = timedelta(hours=1)


class Agent(Protocol):
    """A module of this folder: two functions without effects and a name."""

    NAME: str

    @staticmethod
    def call(ask: Ask, environ: Mapping[str, str]) -> Command:
        """The program to start; `environ` is the person's environment."""
        ...

    @staticmethod
    def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
        """What its end means; `text` reads its standard output when that is needed."""
        ...


def variables(ask: Ask) -> dict[str, str]:
    """What an agent learns from its environment. Who fixes what a review found is in a round of it, in no phase."""
    fix = ask.phase.removeprefix("fix")
    fixing = fix.isdigit() and fix != ask.phase
    said = {
        "DOFLOW_RUN": ask.run,
        "DOFLOW_RUN_DIR": os.path.join(ask.root, ask.run_dir),
        "DOFLOW_STEP": ask.step,
        "DOFLOW_MAKES": "\n".join(absolute(ask, path) for path in ask.makes),
        "DOFLOW_ROLE": ask.role,
        "DOFLOW_PERSONA": ask.persona,
        "DOFLOW_ROUND": fix if fixing else str(ask.round),
        "DOFLOW_ATTEMPT": str(ask.attempt),
    }
    left = {"DOFLOW_BUDGET_USD": f"{ask.budget:.4f}"} if ask.budget is not None else {}
    return said | left | ({"DOFLOW_PHASE": ask.phase} if ask.phase and not fixing else {})


def absolute(ask: Ask, path: str) -> str:
    """Where an artifact stands: in the run's folder, from the project's root with '/', or as it is if it says all."""
    folder = os.path.join(ask.root, ask.run_dir)
    if path.startswith(ask.root.rstrip("/") + "/"):
        return path
    if path.startswith("/"):
        return os.path.join(ask.root, path.lstrip("/"))
    if path.startswith(os.path.relpath(folder, ask.root) + "/"):
        return os.path.join(ask.root, path)
    return os.path.join(folder, path)


def disbelieved(said: str, now: datetime | None = None) -> str:
    """Words for a time that is further away than is believed; '' for any other."""
    try:
        moment = datetime.fromisoformat(said.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    far = moment > (now or datetime.now(UTC)) + LATEST
    return f" (the agent said {said.strip()}; at most {LATEST.days} days are believed)" if far else ""


def resume_at(said: str, now: datetime | None = None) -> str:
    """When to try again, in UTC: the time that was said. One that is past means in a minute, one further away than a week
    means in a week. Without a zone it is local time. Nothing said, or nothing that is a time: in an hour.
    """
    now = now or datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(said.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        moment = now + UNSAID
    moment = now + SOONEST if moment <= now else min(moment, now + LATEST)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
