"""The `command` agent: any program. Prompt on stdin, DOFLOW_* variables, final text on stdout, exit 0 = done."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from doflow.agents import contract
from doflow.flow.model import Ask, Outcome, Status, Usage
from doflow.util.errors import FlowError, Problem
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command, Result
from doflow.util.records import replace

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
    env = environment.for_agent(environ, (), profile.env, contract.variables(ask), root=ask.root)
    return Command((*profile.argv, *profile.args), ask.prompt.encode("utf-8", "surrogateescape"), env, ask.root)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    found = _outcome(ask, result, text)
    told = process.tail(result.err)
    if _USAGE not in told:
        return found
    usage, model = _used(told)
    return replace(found, usage=usage, model=model or found.model)


def _outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    reason = process.explain(result, ask.profile.argv)
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, reason)
    if result.stopped:
        hint = f"a longer limit: `timeout:` of the step, or `timeouts.{result.stopped}` in doflow.yaml"
        return Outcome(Status.TIMEOUT, reason, hint, transient=True)
    said = text()
    if result.code == 0:
        return Outcome(Status.DONE, text=said)
    if _limited(ask, result, said):
        when = _resume(said) or _resume(process.tail(result.err))
        reason = f"{ask.profile.name} is rate limited{contract.disbelieved(when)}"
        return Outcome(Status.RATE_LIMITED, reason, resume_at=contract.resume_at(when), text=said)
    if result.code in _NOT_STARTED:
        hint = f"check `agents.{ask.profile.name}.argv` in doflow.yaml; the log is {_log(result)}"
        return Outcome(Status.FAILED, reason + _because(result, said), hint, said)
    return Outcome(Status.FAILED, reason + _because(result, said), f"the log is {_log(result)}", said, transient=True)


def _limited(ask: Ask, result: Result, said: str) -> bool:
    """By its exit code, or (never after exit 0: a text may well speak of limits) by its words."""
    if result.code == ask.profile.rate_limit_exit:
        return True
    words = ask.profile.rate_limit_match.casefold()
    return bool(words) and (words in said.casefold() or words in process.tail(result.err).casefold())


def _resume(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    said = [line[len(_RESUME) :].strip() for line in lines if line.upper().startswith(_RESUME)]
    return said[-1] if said else ""


def _used(told: str) -> tuple[Usage | None, str]:
    """What the program says it used: the last whole `USAGE: {"in": 1200, "out": 300, "cached": 0, "usd": 0.01}`."""
    import json

    from doflow.agents.adapters import json_stream as stream

    for line in reversed([line.strip() for line in told.splitlines()]):
        if line.startswith(_USAGE):
            try:
                said = json.loads(line[len(_USAGE) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict):
                taken, given, cached = (stream.count(said.get(name)) for name in ("in", "out", "cached"))
                return Usage(taken, given, cached, stream.price(said.get("usd"))), stream.words(said.get("model"))
    return None, ""


def _log(result: Result) -> str:
    """Where the program left its words."""
    return result.err if process.tail(result.err, 1) else result.out


def _because(result: Result, said: str) -> str:
    """The last line that the program left, which mostly says why."""
    lines = [line for line in process.tail(result.err, 1000).strip().splitlines() if not line.startswith(_USAGE)]
    lines = lines or process.clean(said[-1000:]).strip().splitlines()
    return f": {lines[-1].strip()[:300]}" if lines else ""
