"""Which agents there are; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from doflow.agents.contract import Agent
from doflow.errors import UsageError

AGENTS = {
    "command": "doflow.agents.command",
    "rehearsal": "doflow.agents.rehearsal",
    "replay": "doflow.agents.replay",
    "claude": "doflow.agents.claude",
    "codex": "doflow.agents.codex",
    "opencode": "doflow.agents.opencode",
    "gemini": "doflow.agents.gemini",
}
CLIS = ("claude", "codex", "opencode", "gemini")
KNOWN = tuple(AGENTS)


def find(use: str) -> Agent:
    """The agent that a profile's `use:` names."""
    if use in AGENTS:
        return cast(Agent, import_module(AGENTS[use]))
    raise UsageError(f"there is no agent {use!r}", hint=_suggestion(use))


def _suggestion(use: str) -> str:
    import difflib

    near = difflib.get_close_matches(use, KNOWN, 1)
    return f"did you mean `use: {near[0]}`?" if near else f"`use:` may be one of: {', '.join(KNOWN)}"
