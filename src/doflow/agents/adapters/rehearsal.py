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
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

NAME = "rehearsal"

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsal_program.py")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    """Its variables hold what other agents read in their prompt."""
    check = {name: getattr(ask.check, name) for name in ("headings", "tasks", "schema", "backlog")}
    more = {
        "DOFLOW_ROOT": ask.root,
        "DOFLOW_GOAL": ask.goal,
        "DOFLOW_CHECK": json.dumps(check),
        "DOFLOW_FROM_TEXT": "1" if ask.from_text else "",
        "DOFLOW_MARKERS": "\n".join(ask.markers),
    }
    argv = (sys.executable, "-I", "-S", PROGRAM)
    return registry.agent_command(ask, environ, argv, registry.agent_variables(ask) | more)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    if stopped := registry.stopped_outcome(result, ("the rehearsal",)):
        return stopped
    if result.code == 0:
        return Outcome(Status.DONE, text=text(), model=NAME, usage=Usage(usd=0.0))
    last = runner.tail(result.err, 500).strip().rpartition("\n")[2]
    reason = f"{runner.explain(result, ('the rehearsal',))}: {last}"
    return Outcome(Status.FAILED, reason, f"the log is {result.err}")
