"""The `command` agent: any program. Prompt on stdin, DOFLOW_* variables, final text on stdout, exit 0 = done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from doflow.agents import rate_limits, registry
from doflow.agents.adapters import json_stream
from doflow.agents.adapters.json_stream import count_value, text_value
from doflow.flow.model import Ask, Outcome, Status, Usage
from doflow.util.errors import FlowError, Problem
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

NAME = "command"

_RESUME = "RESUME-AT:"
_USAGE = "USAGE:"
_NOT_STARTED = (126, 127)


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    profile = ask.profile
    if not profile.argv:
        message = f"agents.{profile.name}: `use: command` needs an `argv`"
        hint = f"write {profile.name}: {{use: command, argv: [python3, tools/agent.py]}}"
        raise FlowError((Problem("doflow.yaml", 0, 0, message, hint),))
    return registry.agent_command(ask, environ, (*profile.argv, *profile.args), registry.agent_variables(ask))


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    found = _outcome(ask, result, text)
    told = runner.tail(result.err)
    if _USAGE not in told:
        return found
    usage, model = _used(told)
    return replace(found, usage=usage, model=model or found.model)


def _outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    hint = f"raise `timeout:` of the step, or `timeouts.{result.stopped}` in doflow.yaml"
    if stopped := registry.stopped_outcome(result, ask.profile.argv, hint):
        return stopped
    said = text()
    if result.code == 0:
        return Outcome(Status.DONE, text=said)
    if _limited(ask, result, said):
        when = _resume(said) or _resume(runner.tail(result.err))
        reason = f"{ask.profile.name} is rate limited{rate_limits.distant_time_note(when)}"
        return Outcome(Status.RATE_LIMITED, reason, resume_at=rate_limits.parse_resume_time(when), text=said)
    reason = runner.explain(result, ask.profile.argv) + _because(result, said)
    hint = f"the log is {result.err if runner.tail(result.err, 1) else result.out}"
    if result.code in _NOT_STARTED:
        return Outcome(Status.FAILED, reason, f"check `agents.{ask.profile.name}.argv` in doflow.yaml; {hint}", said)
    return Outcome(Status.FAILED, reason, hint, said, transient=True)


def _limited(ask: Ask, result: Result, said: str) -> bool:
    """Whether it is rate limited, by exit code or by its output (never after exit 0)."""
    if result.code == ask.profile.rate_limit_exit:
        return True
    words = ask.profile.rate_limit_match.casefold()
    return bool(words) and (words in said.casefold() or words in runner.tail(result.err).casefold())


def _resume(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    said = [line[len(_RESUME) :].strip() for line in lines if line.upper().startswith(_RESUME)]
    return said[-1] if said else ""


def _used(told: str) -> tuple[Usage | None, str]:
    """The reported usage: the last complete `USAGE: {"in": 1200, "out": 300, "cached": 0, "usd": 0.01}`."""
    for line in reversed([line.strip() for line in told.splitlines()]):
        if line.startswith(_USAGE):
            try:
                said = json.loads(line[len(_USAGE) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict):
                taken, given, cached = (count_value(said.get(name)) for name in ("in", "out", "cached"))
                usage = Usage(taken, given, cached, json_stream.price_value(said.get("usd")))
                return usage, text_value(said.get("model"))
    return None, ""


def _because(result: Result, said: str) -> str:
    """The last line of the program's output, which usually gives the reason."""
    lines = [line for line in runner.tail(result.err, 1000).strip().splitlines() if not line.startswith(_USAGE)]
    lines = lines or runner.clean(said[-1000:]).strip().splitlines()
    return f": {lines[-1].strip()[:300]}" if lines else ""
