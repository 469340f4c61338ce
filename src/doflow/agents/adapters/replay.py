"""The `replay` agent: replays calls recorded with `--record`. Its program is `replay_program.py`.

It matches a call by step, phase, role, persona and prompt, and fails with an explanation if no recording is the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from doflow.agents import rate_limits, registry
from doflow.flow.model import Ask, Outcome, Status, Usage
from doflow.util import state_folder
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result
from doflow.util.text import Redactor

NAME = "replay"

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replay_program.py")
_MARK = "REPLAYED: "


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    folder = os.path.join(ask.root, ask.profile.sessions or state_folder.RUNS)
    more = {
        "DOFLOW_ROOT": ask.root,
        "DOFLOW_SESSIONS": folder,
        "DOFLOW_PHASE": ask.phase,  # as recorded, also for a fixer
        "DOFLOW_REPLAY_RUN": os.path.relpath(os.path.join(ask.root, ask.run_dir), ask.root),
    }
    ask = replace(ask, prompt=Redactor(environ).text(ask.prompt))  # as recorded
    argv = (sys.executable, "-I", "-S", PROGRAM)
    return registry.agent_command(ask, environ, argv, registry.agent_variables(ask) | more)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    if stopped := registry.stopped_outcome(result, ("the replay",)):
        return stopped
    report = _report(result.err)
    status = next((found for found in Status if found.value == report.get("status")), None)
    if status is None or (status is Status.DONE) != (result.code == 0):
        reason = runner.explain(result, ("the replay",))
        return Outcome(Status.FAILED, f"{reason}: it did not report what it replayed", f"the log is {result.err}")
    model, usage = str(report.get("model", "")), Usage(usd=0.0)
    if status is Status.DONE:
        return Outcome(status, text=text(), model=model, usage=usage)
    when = rate_limits.parse_resume_time(str(report.get("resume_at", ""))) if status is Status.RATE_LIMITED else ""
    hint = str(report.get("hint", "")) or "record it: run the same command with --record and a real agent"
    reason, transient = str(report.get("reason", "")), bool(report.get("transient"))
    return Outcome(status, reason, hint, resume_at=when, transient=transient, usage=usage)


def _report(err: str) -> dict[str, Any]:
    lines = [line for line in runner.tail(err, 100_000).splitlines() if line.startswith(_MARK)]
    try:
        found = json.loads(lines[-1][len(_MARK) :]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
