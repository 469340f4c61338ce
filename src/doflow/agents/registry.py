"""Agent registry: adapters by name (imported on use), their protocol, and what they share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Protocol, cast

from doflow.flow.model import Ask, Outcome
from doflow.util import timestamps
from doflow.util.errors import UsageError
from doflow.util.process.runner import Command, Result

AGENTS = {
    "command": "doflow.agents.adapters.command",
    "rehearsal": "doflow.agents.adapters.rehearsal",
    "replay": "doflow.agents.adapters.replay",
    "claude": "doflow.agents.adapters.claude",
    "codex": "doflow.agents.adapters.codex",
    "opencode": "doflow.agents.adapters.opencode",
    "gemini": "doflow.agents.adapters.gemini",
}
CLIS = ("claude", "codex", "opencode", "gemini")
KNOWN = tuple(AGENTS)


def find_agent(use: str) -> Agent:
    """The agent that a profile's `use:` names."""
    if use in AGENTS:
        return cast(Agent, import_module(AGENTS[use]))
    raise UsageError(f"unknown agent {use!r}", hint=_suggestion(use))


def _suggestion(use: str) -> str:
    near = difflib.get_close_matches(use, KNOWN, 1)
    return f"did you mean `use: {near[0]}`?" if near else f"`use:` may be one of: {', '.join(KNOWN)}"


SOONEST = timedelta(minutes=1)
LATEST = timedelta(days=7)
UNSAID = timedelta(hours=1)


class Agent(Protocol):
    """An adapter module: a name and two pure functions."""

    NAME: str

    @staticmethod
    def call(ask: Ask, environ: Mapping[str, str]) -> Command:
        """The command line; `environ` is the user's environment."""
        ...

    @staticmethod
    def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
        """The outcome; `text` reads the standard output when needed."""
        ...


def agent_variables(ask: Ask) -> dict[str, str]:
    """The DOFLOW_* variables of a call. A fixer has a review round and no phase."""
    fix = ask.phase.removeprefix("fix")
    fixing = fix.isdigit() and fix != ask.phase
    said = {
        "DOFLOW_RUN": ask.run,
        "DOFLOW_RUN_DIR": os.path.join(ask.root, ask.run_dir),
        "DOFLOW_STEP": ask.step,
        "DOFLOW_MAKES": "\n".join(artifact_path(ask, path) for path in ask.makes),
        "DOFLOW_ROLE": ask.role,
        "DOFLOW_PERSONA": ask.persona,
        "DOFLOW_ROUND": fix if fixing else str(ask.round),
        "DOFLOW_ATTEMPT": str(ask.attempt),
    }
    left = {"DOFLOW_BUDGET_USD": f"{ask.budget:.4f}"} if ask.budget is not None else {}
    return said | left | ({"DOFLOW_PHASE": ask.phase} if ask.phase and not fixing else {})


def artifact_path(ask: Ask, path: str) -> str:
    """The absolute path of an artifact: relative to the run's folder, or to the project's root with a leading '/'."""
    folder = os.path.join(ask.root, ask.run_dir)
    if path.startswith(ask.root.rstrip("/") + "/"):
        return path
    if path.startswith("/"):
        return os.path.join(ask.root, path.lstrip("/"))
    if path.startswith(os.path.relpath(folder, ask.root) + "/"):
        return os.path.join(ask.root, path)
    return os.path.join(folder, path)


def distant_time_note(said: str, now: datetime | None = None) -> str:
    """A note for a reset time beyond the maximum wait; '' for any other."""
    try:
        moment = datetime.fromisoformat(said.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    far = moment > (now or datetime.now(UTC)) + LATEST
    return f" (the agent said {said.strip()}; limited to {LATEST.days} days)" if far else ""


def parse_resume_time(said: str, now: datetime | None = None) -> str:
    """When to try again, in UTC. A past time means in a minute, one more than a week away means in a week. Without a zone it
    is local time. Without a valid time: in an hour.
    """
    now = now or datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(said.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        moment = now + UNSAID
    moment = now + SOONEST if moment <= now else min(moment, now + LATEST)
    return timestamps.format_seconds(moment.timestamp())
