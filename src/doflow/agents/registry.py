"""Which agents there are; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from doflow.agents.contract import Agent
from doflow.util.errors import UsageError

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


def find(use: str) -> Agent:
    """The agent that a profile's `use:` names."""
    if use in AGENTS:
        return cast(Agent, import_module(AGENTS[use]))
    raise UsageError(f"there is no agent {use!r}", hint=_suggestion(use))


def _suggestion(use: str) -> str:
    import difflib

    near = difflib.get_close_matches(use, KNOWN, 1)
    return f"did you mean `use: {near[0]}`?" if near else f"`use:` may be one of: {', '.join(KNOWN)}"
