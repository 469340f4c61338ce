"""Budgets and call logging: no agent call starts once its run or step has used its budget; the run pauses.

Running calls are allowed to finish and may exceed the budget; the message says so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from doflow.agents import registry
from doflow.flow.model import Ask, Budget, Outcome, Profile, Status, Step
from doflow.flow.parsing import syntax
from doflow.runs import next_steps, usage
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.usage import Spent
from doflow.util import timestamps
from doflow.util.errors import DoflowError, UsageError
from doflow.util.hints import Next
from doflow.util.process.runner import Result

#: programs that report the cost of a call
_SAYING = ("claude", "opencode", "rehearsal", "replay")
_FREE = Budget()

#: whether it is the step's own limit, the limit, and what is spent
Limit = tuple[bool, Budget, Spent]


def budget_stop(step: Step, context: RunContext) -> Outcome | None:
    """The outcome if the budget of this step or run is used up; None = continue."""
    if context.options.budget and not context.record.budget_lifted:
        _accept(context)
    for own, limit, spent in _limits(step, context):
        whose = f"the budget of step {step.id.partition(':')[0]}" if own else "the budget of this run"
        full, unknown = _over(limit, spent), _unknown(limit, spent)
        if full or unknown:
            steps = _raised(limit, step, context, own=own) if full else _uncounted(limit, context)
            return _stop(f"{whose} {full or unknown}", steps, context)
    return None


def _accept(context: RunContext) -> None:
    """With --budget: unknown usage of earlier commands no longer stops the run."""
    with context.guard:
        context.record.lift_budget()
        spent = usage.apply_prices(usage.total_spent(context.record.spent.values()), context.settings)
        many = spent.silent + len(spent.unpriced)
        if many:
            words = f"{_calls(many)} did not report usage; --budget={context.options.budget} continues without counting them"
            context.events.add("warning", message=words, accepted=many)
            context.record.accept_unknown_usage()


def with_remaining_budget(ask: Ask, step: Step, context: RunContext) -> Ask:
    """The call with its remaining budget in US dollars, for programs that can limit themselves."""
    left = [limit.usd - spent.usd for _, limit, spent in _limits(step, context) if limit.usd is not None]
    return replace(ask, budget=max(min(left), 0.0001)) if left else ask


def explain_budget_stop(outcome: Outcome, ask: Ask, step: Step, context: RunContext) -> Outcome:
    """Explain the outcome of a program that stopped at its remaining budget."""
    if outcome.status is not Status.PAUSED or ask.budget is None:
        return outcome
    full = budget_stop(step, context) or _stop(
        f"{ask.profile.name} stopped: the remaining {usage.format_dollars(ask.budget)} is not enough for {ask.step}",
        _raised(Budget(ask.budget), step, context), context,
    )  # fmt: skip
    return replace(outcome, status=full.status, reason=full.reason, hint=full.hint, next=full.next)


def check_prices(profile: Profile, step: Step, context: RunContext) -> None:
    """Before a run starts: a budget in US dollars needs agents with a known price."""
    dear = any(limit.usd is not None for _, limit, _ in _limits(step, context))
    known = profile.use in _SAYING or usage.price_table(profile, step.model or profile.model, context.settings)
    if dear and not known:
        raise UsageError(
            f"a budget in US dollars cannot be enforced: there is no price for the agent {profile.name!r} "
            f"({profile.use}) of step {step.id}",
            f"doflow.yaml: agents.{profile.name}: price: {{in: 3, out: 15}} (US dollars per million tokens), "
            "or limit the tokens instead: budget: {tokens: 500000}",
        )


def _limits(step: Step, context: RunContext) -> Iterator[Limit]:
    """The limits of a step: only the command line's if given, else the step's own and the run's."""
    said = context.options.budget
    whole, own = context.settings.budget, step.budget
    if said:
        whole, own = syntax.parse_budget(said), _FREE
    if own != _FREE:
        group = step.id.partition(":")[0]
        yield True, own, usage.apply_prices(context.record.spent.get(group) or Spent(), context.settings)
    if whole != _FREE:
        yield False, whole, usage.apply_prices(usage.total_spent(context.record.spent.values()), context.settings)


def _over(limit: Budget, spent: Spent) -> str:
    found = []
    if limit.usd is not None and spent.usd >= limit.usd:
        found.append((usage.format_dollars(spent.usd), usage.format_dollars(limit.usd), spent.usd - limit.usd > 1e-9))
    if limit.tokens is not None and spent.tokens >= limit.tokens:
        found.append((f"{spent.tokens:,}", f"{limit.tokens:,} tokens", spent.tokens > limit.tokens))
    if not found:
        return ""
    used, most, above = found[0]
    more = " (calls that were already running went over it)" if above else ""
    return f"is used up: {used} of {most}{more}"


def _unknown(limit: Budget, spent: Spent) -> str:
    """Why the budget cannot be enforced: calls with unknown usage; '' = it can."""
    if limit != _FREE and spent.silent:
        return f"cannot be enforced: {_calls(spent.silent)} did not report usage"
    if limit.usd is not None and spent.unpriced:
        return f"cannot be enforced: {_calls(len(spent.unpriced))} reported tokens but no price, and doflow.yaml has no price for them"
    return ""


def _calls(many: int) -> str:
    return f"{many} call{'s' if many > 1 else ''}"


def _stop(reason: str, steps: tuple[Next, ...], context: RunContext) -> Outcome:
    status = Status.FAILED if context.settings.budget_on_exceed == "fail" else Status.PAUSED
    return Outcome(status, reason, next=steps)


def _uncounted(limit: Budget, context: RunContext) -> tuple[Next, ...]:
    """The commands to continue with the same limit and ignore unknown usage."""
    same = f"{limit.usd:g}" if limit.usd is not None else f"{limit.tokens}tokens"
    return (
        Next(("doflow", "cost"), does="shows which"),
        Next(why="a program reports its usage with a line `USAGE: {…}`; prices are set in doflow.yaml"),
        next_steps.resume(context, f"--budget={same}", why="to continue without counting them"),
    )


def _raised(limit: Budget, step: Step, context: RunContext, own: bool = False) -> tuple[Next, ...]:
    """The command that continues with a raised limit."""
    spent = usage.total_spent(context.record.spent.values())
    if limit.usd is not None:
        more = f"{math.ceil(round(max(limit.usd * 2, spent.usd + limit.usd) * 100, 6)) / 100:g}"
    else:
        more = f"{max((limit.tokens or 0) * 2, spent.tokens + (limit.tokens or 0))}tokens"
    place = f"`budget:` of {step.id} in {step.origin.file}" if own else "`budget:` in doflow.yaml"
    return (
        Next(("doflow", "cost"), does="shows the cost of each step"),
        Next(why=f"raise {place}"),
        next_steps.resume(context, f"--budget={more}", why="once", link="or"),
    )


_NOT_STARTED = (126, 127)


def log_call_start(ask: Ask, job: Job, context: RunContext, log: str) -> None:
    """Log the start of a call, so that its usage can be found after a kill."""
    where = {**job.where, "role": ask.role, "attempt": ask.attempt, "agent": ask.profile.name, "use": ask.profile.use}
    where |= {"persona": ask.persona, "round": ask.round} if ask.persona else {}
    entry = context.events.add("call_starting", **where, model=ask.model, log=os.path.relpath(log, context.root))
    with context.guard:
        context.record.start_call(entry)


def log_call_end(ask: Ask, context: RunContext, result: Result, outcome: Outcome, log: str) -> Outcome:
    """Log the end of a call and return the outcome with its price."""
    entry = context.record.open_calls[os.path.relpath(log, context.root)]
    free = outcome.usage is None and (outcome.gone or result.code in _NOT_STARTED)
    usd = _written({**entry, "free": True} if free else entry, context, ask.profile, outcome, result.elapsed)
    if outcome.usage is not None and outcome.usage.usd is None and usd is not None:
        return replace(outcome, usage=replace(outcome.usage, usd=usd))
    return outcome


def log_interrupted_calls(context: RunContext) -> None:
    """Log the end of calls that were running when doflow was killed; their usage is read from their logs."""
    for entry in list(context.record.open_calls.values()):
        profile = context.settings.profile(entry["agent"]) or Profile(entry["agent"], entry.get("use", "command"))
        out = str(context.root / entry["log"])
        _written(entry, context, profile, _overheard(entry, context, profile, out), _lasted(entry, out))


def _overheard(entry: Mapping[str, Any], context: RunContext, profile: Profile, out: str) -> Outcome:
    """The outcome of a killed call from its log, as if it had been cancelled."""
    result = Result(-9, out, out.removesuffix(".log") + ".err.log", 0.0, "cancelled")
    ask = Ask(entry["step"], "", profile, str(context.root), context.run.name, context.run.dir, entry.get("model", ""))
    try:
        return registry.find_agent(profile.use).outcome(ask, result, lambda: "")
    except (DoflowError, OSError, ValueError):
        return Outcome(Status.CANCELLED, "doflow was killed")


def _lasted(entry: Mapping[str, Any], out: str) -> float:
    """From the start of a killed call to its last output."""
    try:
        return max(0.0, os.stat(out).st_mtime - timestamps.parse(entry["at"]))
    except (OSError, ValueError):
        return 0.0


def _written(
    entry: Mapping[str, Any], context: RunContext, profile: Profile, outcome: Outcome, seconds: float
) -> float | None:
    reported, model = outcome.usage, outcome.model or entry.get("model", "")
    usd = usage.call_price(reported, profile, model, context.settings)
    about = {name: value for name, value in entry.items() if name not in ("event", "at", "run", "model")}
    about |= {
        "model": model,
        "asked": entry.get("model", ""),
        "status": outcome.status.value,
        "seconds": round(seconds, 3),
    }
    if reported:
        about |= {"in": reported.tokens_in, "out": reported.tokens_out, "cached": reported.tokens_cached}
    about["usd"] = usd
    with context.guard:
        context.record.end_call(context.events.add("call_ended", **about))
    return usd
