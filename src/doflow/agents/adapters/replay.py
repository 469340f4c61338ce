"""The `replay` agent: plays calls that were recorded with `--record`. Its program is `replay_program.py`.

It knows a call by its step, phase, role, persona and prompt, and fails in words where no recording is the same: never a guess.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from doflow.agents import contract
from doflow.flow.model import Ask, Outcome, Status, Usage
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command, Result
from doflow.util.redaction import Redactor

NAME = "replay"

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replay_program.py")
_MARK = "REPLAYED: "
_RECORDED = ".doflow/runs"


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    folder = os.path.join(ask.root, ask.profile.sessions or _RECORDED)
    more = {
        "DOFLOW_ROOT": ask.root,
        "DOFLOW_SESSIONS": folder,
        "DOFLOW_PHASE": ask.phase,  # as it was written down: of a fixer, too
        "DOFLOW_REPLAY_RUN": os.path.relpath(os.path.join(ask.root, ask.run_dir), ask.root),
    }
    env = environment.for_agent(environ, (), ask.profile.env, contract.variables(ask) | more, root=ask.root)
    prompt = Redactor(environ).text(ask.prompt)  # as it was kept
    return Command((sys.executable, "-I", "-S", PROGRAM), prompt.encode("utf-8", "surrogateescape"), env, ask.root)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    reason = process.explain(result, ("the replay",))
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, reason)
    if result.stopped:
        return Outcome(Status.TIMEOUT, reason, transient=True)
    told = _told(result.err)
    status = next((found for found in Status if found.value == told.get("status")), None)
    if status is None or (status is Status.DONE) != (result.code == 0):
        return Outcome(Status.FAILED, f"{reason}: it did not say what it played", f"the log is {result.err}")
    model, usage = str(told.get("model", "")), Usage(usd=0.0)
    if status is Status.DONE:
        return Outcome(status, text=text(), model=model, usage=usage)
    when = contract.resume_at(str(told.get("resume_at", ""))) if status is Status.RATE_LIMITED else ""
    hint = str(told.get("hint", "")) or "record it: the same command with --record and the agent that can do it"
    return Outcome(
        status, str(told.get("reason", "")), hint, resume_at=when, transient=bool(told.get("transient")), usage=usage
    )


def _told(err: str) -> dict[str, Any]:
    import json

    lines = [line for line in process.tail(err, 100_000).splitlines() if line.startswith(_MARK)]
    try:
        found = json.loads(lines[-1][len(_MARK) :]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
