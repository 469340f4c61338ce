"""The budget: no call of an agent begins once its run, or its step, has spent what it may. The run pauses, nothing is lost.

Calls that are under way when the limit is reached are let finish: by them a budget can be overrun, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from doflow.flow.model import Ask, Budget, Outcome, Profile, Status, Step
from doflow.runs.context import World
from doflow.runs.state import usage as tally
from doflow.runs.state.usage import Spent
from doflow.util.errors import UsageError
from doflow.util.records import replace

#: programs that say themselves what a call cost
_SAYING = ("claude", "opencode", "rehearsal", "replay")
_FREE = Budget()

Limit = tuple[str, Budget, Spent]


def reached(step: Step, world: World) -> Outcome | None:
    """Why no agent may be called for this step any more; None = go on."""
    if world.options.budget and not world.book.limited:
        _accept(world)
    for whose, limit, spent in _limits(step, world):
        full, unknown = _over(limit, spent), _unknown(limit, spent)
        if full or unknown:
            hint = _next(whose, limit, step, world) if full else _anyway(limit, world)
            return _stop(f"{whose} {full or unknown}", hint, world)
    return None


def _accept(world: World) -> None:
    """The first call of a command that names a limit: what earlier commands left unknown stops it no more."""
    with world.guard:
        world.book.limited = True
        spent = tally.priced(tally.total(world.book.spent.values()), world.settings)
        many = spent.silent + len(spent.unpriced)
        if many:
            words = f"{_calls(many)} did not tell what was used; --budget={world.options.budget} goes on without counting that"
            world.ledger.add("warning", message=words, accepted=many)
            world.book.accept()


def given(ask: Ask, step: Step, world: World) -> Ask:
    """The call, told how many US dollars are left for it: a program that can keep to that will."""
    left = [limit.usd - spent.usd for _, limit, spent in _limits(step, world) if limit.usd is not None]
    return replace(ask, budget=max(min(left), 0.0001)) if left else ask


def kept(outcome: Outcome, ask: Ask, step: Step, world: World) -> Outcome:
    """A program that stopped at what was left for it: told as what it is."""
    if outcome.status is not Status.PAUSED or ask.budget is None:
        return outcome
    full = reached(step, world) or _stop(
        f"{ask.profile.name} stopped: the {tally.dollars(ask.budget)} that were left are not enough for {ask.step}",
        _next("the budget", Budget(ask.budget), step, world), world,
    )  # fmt: skip
    return replace(outcome, status=full.status, reason=full.reason, hint=full.hint)


def check(profile: Profile, step: Step, world: World) -> None:
    """Before a run begins: a limit in US dollars needs agents whose price is known."""
    dear = any(limit.usd is not None for _, limit, _ in _limits(step, world))
    if dear and profile.use not in _SAYING and not tally.table(profile, step.model or profile.model, world.settings):
        raise UsageError(
            f"a budget in US dollars cannot be kept: nobody says what a call of the agent {profile.name!r} "
            f"({profile.use}) costs, and it is to do {step.id}",
            f"doflow.yaml: agents.{profile.name}: price: {{in: 3, out: 15}} (US dollars per million tokens), "
            "or limit the tokens instead: budget: {tokens: 500000}",
        )


def _limits(step: Step, world: World) -> Iterator[Limit]:
    """What holds for a step: the command line alone if it says something, else its own limit and the run's."""
    said = world.options.budget
    whole, own = world.settings.budget, step.budget
    if said:
        from doflow.flow.parsing import limits

        whole, own = limits.budget(said), _FREE
    if own != _FREE:
        group = step.id.partition(":")[0]
        yield f"the budget of step {group}", own, tally.priced(world.book.spent.get(group) or Spent(), world.settings)
    if whole != _FREE:
        yield "the budget of this run", whole, tally.priced(tally.total(world.book.spent.values()), world.settings)


def _over(limit: Budget, spent: Spent) -> str:
    found = []
    if limit.usd is not None and spent.usd >= limit.usd:
        found.append((tally.dollars(spent.usd), tally.dollars(limit.usd), spent.usd - limit.usd > 1e-9))
    if limit.tokens is not None and spent.tokens >= limit.tokens:
        found.append((f"{spent.tokens:,}", f"{limit.tokens:,} tokens", spent.tokens > limit.tokens))
    if not found:
        return ""
    used, most, above = found[0]
    more = " (what is above it was spent by calls that were under way)" if above else ""
    return f"is used up: {used} of {most}{more}"


def _unknown(limit: Budget, spent: Spent) -> str:
    """A call that did not say what it used: the next one could be the thousandth above the limit."""
    if limit != _FREE and spent.silent:
        return f"cannot be kept: {_calls(spent.silent)} did not tell what was used"
    if limit.usd is not None and spent.unpriced:
        return f"cannot be kept: {_calls(len(spent.unpriced))} told tokens but no price, and no table in doflow.yaml has one"
    return ""


def _calls(many: int) -> str:
    return f"{many} call{'s' if many > 1 else ''}"


def _stop(reason: str, hint: str, world: World) -> Outcome:
    status = Status.FAILED if world.settings.budget_on_exceed == "fail" else Status.PAUSED
    return Outcome(status, reason, hint)


def _anyway(limit: Budget, world: World) -> str:
    """The command that takes what is unknown as it is, under the same limit."""
    same = f"{limit.usd:g}" if limit.usd is not None else f"{limit.tokens}tokens"
    agent = f" --agent={world.options.agent}" if world.options.agent else ""
    told = "doflow cost shows which; a program of yours tells it by a line `USAGE: {…}`, a price stands in doflow.yaml"
    return f"{told}; to go on without counting it: doit {world.flow.name}{agent} --budget={same}"


def _next(whose: str, limit: Budget, step: Step, world: World) -> str:
    """The command that goes on: with a limit that leaves as much again as there was."""
    spent = tally.total(world.book.spent.values())
    if limit.usd is not None:
        more = f"{math.ceil(round(max(limit.usd * 2, spent.usd + limit.usd) * 100, 6)) / 100:g}"
    else:
        more = f"{max((limit.tokens or 0) * 2, spent.tokens + (limit.tokens or 0))}tokens"
    place = f"`budget:` of {step.id} in {step.origin.file}" if "step" in whose else "`budget:` in doflow.yaml"
    agent = f" --agent={world.options.agent}" if world.options.agent else ""
    return f"doflow cost shows what went where; raise {place}, or once: doit {world.flow.name}{agent} --budget={more}"
