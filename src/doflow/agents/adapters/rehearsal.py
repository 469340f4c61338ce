"""The `rehearsal` agent: offline, without a key, the same every time. Its program is `rehearsal_program.py`.

Its files pass each step's checks and say that they are a rehearsal. For demos, for trying out a flow, for tests.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping

from doflow.agents import registry
from doflow.flow.model import Ask, Outcome, Status, Usage
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Result

NAME = "rehearsal"

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsal_program.py")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    env = environment.for_agent(environ, (), ask.profile.env, registry.agent_variables(ask) | _more(ask), root=ask.root)
    return Command((sys.executable, "-I", "-S", PROGRAM), ask.prompt.encode("utf-8", "surrogateescape"), env, ask.root)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    reason = runner.explain(result, ("the rehearsal",))
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, reason)
    if result.stopped:
        return Outcome(Status.TIMEOUT, reason, transient=True)
    if result.code == 0:
        return Outcome(Status.DONE, text=text(), model=NAME, usage=Usage(usd=0.0))
    last = runner.tail(result.err, 500).strip().rpartition("\n")[2]
    return Outcome(Status.FAILED, f"{reason}: {last}", f"the log is {result.err}")


def _more(ask: Ask) -> dict[str, str]:
    """Variables with what other agents read in their prompt."""
    check = {name: getattr(ask.check, name) for name in ("headings", "tasks", "schema", "backlog")}
    return {
        "DOFLOW_ROOT": ask.root,
        "DOFLOW_GOAL": ask.goal,
        "DOFLOW_CHECK": json.dumps(check),
        "DOFLOW_FROM_TEXT": "1" if ask.from_text else "",
        "DOFLOW_MARKERS": "\n".join(ask.markers),
    }
