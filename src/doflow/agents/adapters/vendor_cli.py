"""Shared code of the vendor CLIs: command lines, and outcomes from their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from doflow.agents import rate_limits, registry
from doflow.flow.model import Ask, Outcome, Profile, Status, Usage
from doflow.util.errors import UsageError
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

_LIMITS = (
    *("usage limit", "rate limit", "rate_limit", "hit your limit", "quota", "too many requests"),
    "resource_exhausted",
)
_LOGIN = (
    *("/login", "not logged in", "invalid api key", "api key not valid", "authentication", "unauthorized"),
    *("unauthenticated", "missing environment variable"),
)
_PASSING = (
    *("overloaded", "network", "connection", "connect to", "econn", "enotfound", "etimedout", "fetch failed", "socket"),
    *("timed out", "timeout", "disconnected", "unavailable", "internal server error", "bad gateway"),
)
_BUSY = (408, 500, 502, 503, 504, 529)
_MISUSE = ("unknown option", "unknown argument", "unexpected argument", "unrecognized", "invalid value")


@dataclass(frozen=True, slots=True)
class Program:
    """A vendor's CLI: name, installation, login, environment variables, and the flags that doflow sets.

    `tried` is the tested version; `asks` are help commands with the flags they must list; `signs` are variables and files
    that indicate a login, `status` is the login status command; `counts` is what it reports per session instead of per
    call: `usd` or `tokens`.
    """

    name: str
    title: str
    package: str
    tried: str
    login: str
    names: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    managed: tuple[str, ...]
    asks: tuple[tuple[str, str], ...]
    signs: tuple[str, ...]
    status: tuple[str, ...] = ()
    counts: str = ""

    @property
    def install(self) -> str:
        return f"npm install -g {self.package}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The parsed records of a call. `success`: reported by the CLI; `status`: the HTTP status of an error.

    `refused`: denied tool calls, which fail the step even after a success; `denied`: warnings only, such as messages of
    doflow's hooks.
    """

    success: bool = False
    text: str = ""
    session: str = ""
    model: str = ""
    usage: Usage | None = None
    refused: tuple[str, ...] = ()
    error: str = ""
    status: int = 0
    resets: str = ""
    note: str = ""
    denied: tuple[str, ...] = ()


def may_run_programs(ask: Ask) -> bool:
    """Whether the agent may run programs: in phases and repairs."""
    return not ask.read_only and (bool(ask.phase) or ask.role == "repair")


def build_command(
    program: Program,
    ask: Ask,
    environ: Mapping[str, str],
    words: tuple[str, ...],
    last: tuple[str, ...] = (),
    more: Mapping[str, str] | None = None,
) -> Command:
    """The command line: doflow's `words`, the profile's `args`, then `last`. `more` are variables of this call."""
    refuse_managed(program, ask.profile)
    extra = dict(program.settings) | dict(more or {}) | registry.agent_variables(ask)
    argv = (ask.profile.executable or program.name, *words, *ask.profile.args, *last)
    return registry.agent_command(ask, environ, argv, extra, program.names)


def outcome(program: Program, ask: Ask, result: Result, answer: Answer) -> Outcome:
    found = _outcome(program, ask, result, answer)
    gone = found.status is Status.FAILED and _gone(ask, result, answer)
    spent = answer.usage if program.counts else None
    usage = _since(program.counts, ask.spent, answer.usage) if ask.resume and spent and ask.spent else answer.usage
    session = "" if gone else answer.session or ask.resume
    denied = tuple(dict.fromkeys(_short(reason) for reason in answer.denied))[-3:]
    model = answer.model or ask.model
    return replace(found, session=session, model=model, usage=usage, spent=spent, gone=gone, denied=denied)


def _gone(ask: Ask, result: Result, answer: Answer) -> bool:
    """Whether the session to resume no longer exists: the call ended without usage or a server error."""
    if not ask.resume or result.code in (126, 127) or answer.status:
        return False
    used = answer.usage is not None and answer.usage.tokens_in + answer.usage.tokens_out > 0
    return not used and not _any(_PASSING, answer.error.casefold())


def _since(counts: str, before: Usage | None, now: Usage | None) -> Usage | None:
    """The usage of this call from the session's totals; a total that fell is the usage of this call alone."""
    if before is None or now is None:
        return now
    if counts == "usd":
        fell = now.usd is None or before.usd is None or now.usd < before.usd
        return now if fell else replace(now, usd=(now.usd or 0.0) - (before.usd or 0.0) or None)
    if now.tokens_in < before.tokens_in or now.tokens_out < before.tokens_out:
        return now
    cached = max(0, now.tokens_cached - before.tokens_cached)
    return Usage(now.tokens_in - before.tokens_in, now.tokens_out - before.tokens_out, cached, now.usd)


def _outcome(program: Program, ask: Ask, result: Result, answer: Answer) -> Outcome:
    reason = runner.explain(result, (ask.profile.executable or program.name,))
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, reason)
    if result.stopped and (complaint := _waiting(result, answer)):
        when = rate_limits.parse_reset_time(complaint)
        said = f"{program.name} was stopped while waiting for a rate limit to end{rate_limits.distant_time_note(when)}"
        reason = f"{ask.profile.name} is rate limited ({said})"
        return Outcome(Status.RATE_LIMITED, reason, resume_at=rate_limits.parse_resume_time(when))
    if result.stopped:
        hint = f"raise `timeout:` of the step, or `timeouts.{result.stopped}` in doflow.yaml"
        said = last_error_line(result.err)
        reason += f"; last error: {said}" if _any(_PASSING, said.casefold()) else ""
        return Outcome(Status.TIMEOUT, reason, hint, transient=True)
    if answer.error:
        return _error(program, ask, result, answer)
    if answer.refused:
        return _refused(program, ask, answer)
    if answer.success and result.code == 0:
        return Outcome(Status.DONE, text=answer.text)
    return _unproven(program, ask, result, answer, reason)


def _waiting(result: Result, answer: Answer) -> str:
    """The last errors of a stopped program if they report a rate limit, else ''."""
    said = f"{runner.tail(result.err, 1500)}\n{answer.note}"
    return said if mentions_limit(said) else ""


def mentions_limit(said: str) -> bool:
    """Whether error text mentions a rate limit."""
    low = said.casefold()
    return "status 429" in low or "status: 429" in low or _any(_LIMITS, low)


def is_transient_error(said: str) -> bool:
    """Whether error text is about the network or a busy server, so that the next attempt may succeed."""
    return _any(_PASSING, said.casefold())


def _error(program: Program, ask: Ask, result: Result, answer: Answer) -> Outcome:
    """The outcome of an error that the CLI recorded, by its HTTP status or its text."""
    if ask.budget is not None and "max_budget" in answer.error:
        return Outcome(Status.PAUSED, f"{program.name} stopped at its budget: {_short(answer.error)}", text=answer.text)
    said, low = f"{program.name}: {_short(answer.error)}", answer.error.casefold()
    if answer.status == 429 or (not answer.status and (answer.resets or _any(_LIMITS, low))):
        when = answer.resets or rate_limits.parse_reset_time(answer.error)
        reason = f"{ask.profile.name} is rate limited{rate_limits.distant_time_note(when)} ({said})"
        return Outcome(Status.RATE_LIMITED, reason, resume_at=rate_limits.parse_resume_time(when), text=answer.text)
    if answer.status in (401, 403) or (not answer.status and _any(_LOGIN, low)):
        hint = f"log in ({program.login}), or name the variable with the key in `agents.{ask.profile.name}.env`"
        return Outcome(Status.AUTH, said, hint, answer.text)
    passing = answer.status in _BUSY or (not answer.status and _any(_PASSING, low))
    return Outcome(Status.FAILED, said, f"the log is {result.out}", answer.text, transient=passing)


def _refused(program: Program, ask: Ask, answer: Answer) -> Outcome:
    what = ", ".join(dict.fromkeys(runner.clean(name)[:200] for name in answer.refused))
    allowed = "read" if ask.read_only else "read, write and run programs" if may_run_programs(ask) else "read and write"
    hint = (
        f"in step {ask.step} {program.name} may {allowed} inside the project: say so in the prompt, "
        f"or allow more with `agents.{ask.profile.name}.args`"
    )
    return Outcome(Status.REFUSED, f"{program.name} was refused: {what}", hint, answer.text)


def _unproven(program: Program, ask: Ask, result: Result, answer: Answer, reason: str) -> Outcome:
    """The outcome of a call that reported neither an error nor a success."""
    said = last_error_line(result.err)
    if result.code in (126, 127):
        hint = f"install it ({program.install}), or set its path: `agents.{ask.profile.name}.executable`"
        return Outcome(Status.FAILED, reason, hint, answer.text)
    if result.code == 0:
        reason = f"{program.name} ended without reporting success"
    reason += f" ({_short(answer.note)})" if answer.note else ""
    reason += f": {said}" if said else ""
    misuse = _any(_MISUSE, runner.tail(result.err, 4000).casefold())
    hint = f"the logs are {result.out} and {result.err}"
    return Outcome(Status.FAILED, reason, hint, answer.text, transient=not misuse)


def last_error_line(err: str) -> str:
    """The last line of a program's error log."""
    return runner.tail(err, 1000).strip().rpartition("\n")[2].strip()[:300]


def limit_complaint(err: str) -> str:
    """The last line of an error log if it reports a rate limit, else ''."""
    line = last_error_line(err)
    return line if mentions_limit(line) else ""


def refuse_managed(program: Program, profile: Profile) -> None:
    """Raise if a profile sets flags that doflow sets itself."""
    for word in profile.args:
        flag = next((flag for flag in program.managed if _is(word, flag)), "")
        if flag:
            raise UsageError(
                f"agents.{profile.name}.args: {word!r}: doflow sets {flag} of {program.name} itself, for each step",
                _instead(profile.name, flag),
            )


def _is(word: str, flag: str) -> bool:
    """`--flag`, `--flag=value`, `-fvalue`; `-` alone."""
    if flag == "-":
        return word == flag
    if flag.startswith("--") or not flag.startswith("-"):
        return word == flag or word.startswith(f"{flag}=")
    return word.startswith(flag) and not word.startswith("--")


def _instead(profile: str, flag: str) -> str:
    if flag in ("-m", "--model"):
        return f"remove it from `args` and set `model:` under `agents.{profile}` in doflow.yaml, or in the step"
    return f"remove it from `agents.{profile}.args` in doflow.yaml (or call the program yourself, with `use: command`)"


def _any(words: tuple[str, ...], text: str) -> bool:
    return any(word in text for word in words)


def _short(text: Any) -> str:
    return runner.clean(" ".join(str(text).split()))[:400]
