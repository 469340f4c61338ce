"""Agent registry: adapters by name (imported on use), their protocol, and what they share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Protocol, cast

from doflow.flow.model import Ask, Outcome, Status
from doflow.util.errors import UsageError
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Result

CLIS = ("claude", "codex", "opencode", "gemini")
KNOWN = ("command", "rehearsal", "replay", *CLIS)


def find_agent(use: str) -> Agent:
    """The agent that a profile's `use:` names."""
    if use in KNOWN:
        return cast(Agent, import_module(f"doflow.agents.adapters.{use}"))
    near = difflib.get_close_matches(use, KNOWN, 1)
    hint = f"did you mean `use: {near[0]}`?" if near else f"`use:` may be one of: {', '.join(KNOWN)}"
    raise UsageError(f"unknown agent {use!r}", hint=hint)


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


def agent_command(
    ask: Ask, environ: Mapping[str, str], argv: tuple[str, ...], more: Mapping[str, str], names: Iterable[str] = ()
) -> Command:
    """A program with the prompt on its standard input; `more` and `names`: variables that it gets besides the usual ones."""
    env = environment.for_agent(environ, names, ask.profile.env, more, root=ask.root)
    return Command(argv, ask.prompt.encode("utf-8", "surrogateescape"), env, ask.root)


def stopped_outcome(result: Result, argv: tuple[str, ...], hint: str = "") -> Outcome | None:
    """The outcome of a program that was cancelled or ran into a time limit; None = it ended by itself."""
    reason = runner.explain(result, argv)
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, reason)
    return Outcome(Status.TIMEOUT, reason, hint, transient=True) if result.stopped else None


def agent_variables(ask: Ask) -> dict[str, str]:
    """The DOFLOW_* variables of a call. A fixer has a review round and no phase."""
    fix = ask.phase.removeprefix("fix")
    fixing = fix.isdigit() and fix != ask.phase
    variables = {
        "DOFLOW_RUN": ask.run,
        "DOFLOW_RUN_DIR": os.path.join(ask.root, ask.run_dir),
        "DOFLOW_STEP": ask.step,
        "DOFLOW_MAKES": "\n".join(artifact_path(ask, path) for path in ask.makes),
        "DOFLOW_ROLE": ask.role,
        "DOFLOW_PERSONA": ask.persona,
        "DOFLOW_ROUND": fix if fixing else str(ask.round),
        "DOFLOW_ATTEMPT": str(ask.attempt),
    }
    if ask.budget is not None:
        variables["DOFLOW_BUDGET_USD"] = f"{ask.budget:.4f}"
    return variables | ({"DOFLOW_PHASE": ask.phase} if ask.phase and not fixing else {})


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
