"""The purse of a run: every call of an agent is written down with what it used, and none is begun above the budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from doflow.flow.model import Ask, Outcome, Profile
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import usage as tally
from doflow.util.process.command import Result
from doflow.util.records import replace

_NOT_STARTED = (126, 127)


def begins(ask: Ask, job: Job, world: World, log: str) -> None:
    """Before a call: if doflow is killed under it, the next start finds in its log what it used."""
    where = {**job.where, "role": ask.role, "attempt": ask.attempt, "agent": ask.profile.name, "use": ask.profile.use}
    where |= {"persona": ask.persona, "round": ask.round} if ask.persona else {}
    entry = world.ledger.add("call_starting", **where, model=ask.model, log=os.path.relpath(log, world.root))
    with world.guard:
        world.book.calls[entry["log"]] = entry


def ended(ask: Ask, world: World, result: Result, outcome: Outcome, log: str) -> Outcome:
    """After a call, however it ended. Gives the outcome with its price."""
    entry = world.book.calls[os.path.relpath(log, world.root)]
    free = outcome.usage is None and (outcome.gone or result.code in _NOT_STARTED)
    usd = _written({**entry, "free": True} if free else entry, world, ask.profile, outcome, result.elapsed)
    if outcome.usage is not None and outcome.usage.usd is None and usd is not None:
        return replace(outcome, usage=replace(outcome.usage, usd=usd))
    return outcome


def made_good(world: World) -> None:
    """Calls that a killed doflow had under way: what their logs tell is counted, the rest stays unknown."""
    for entry in list(world.book.calls.values()):
        profile = world.settings.profile(entry["agent"]) or Profile(entry["agent"], entry.get("use", "command"))
        out = str(world.root / entry["log"])
        _written(entry, world, profile, _overheard(entry, world, profile, out), _lasted(entry, out))


def _overheard(entry: Mapping[str, Any], world: World, profile: Profile, out: str) -> Outcome:
    """What a killed call has told of itself, as if it had been cancelled."""
    from doflow.agents import registry
    from doflow.flow.model import Status
    from doflow.util.errors import DoflowError

    killed = Outcome(Status.CANCELLED, "doflow was killed")
    result = Result(-9, out, out.removesuffix(".log") + ".err.log", 0.0, "cancelled")
    ask = Ask(entry["step"], "", profile, str(world.root), world.run.name, world.run.dir, entry.get("model", ""))
    try:
        return registry.find(profile.use).outcome(ask, result, lambda: "")
    except (DoflowError, OSError, ValueError):
        return killed


def _lasted(entry: Mapping[str, Any], out: str) -> float:
    """From the start of a killed call to its last output."""
    import calendar
    import time

    try:
        began = calendar.timegm(time.strptime(entry["at"][:19], "%Y-%m-%dT%H:%M:%S"))
        return max(0.0, os.stat(out).st_mtime - began)
    except (OSError, ValueError):
        return 0.0


def _written(
    entry: Mapping[str, Any], world: World, profile: Profile, outcome: Outcome, seconds: float
) -> float | None:
    usage, model = outcome.usage, outcome.model or entry.get("model", "")
    usd = tally.price(usage, profile, model, world.settings)
    used = {"in": usage.tokens_in, "out": usage.tokens_out, "cached": usage.tokens_cached} if usage else {}
    about = {name: value for name, value in entry.items() if name not in ("event", "at", "run", "model")}
    about |= {
        "model": model,
        "asked": entry.get("model", ""),
        "status": outcome.status.value,
        "seconds": round(seconds, 3),
        **used,
        "usd": usd,
    }
    with world.guard:
        world.book.count(world.ledger.add("call_ended", **about))
    return usd
