"""What the steps to come would cost, by what they took in earlier runs of this project. Reads the ledgers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from doflow.agents import selection as doers
from doflow.cli.report.step_status import WORK, Line
from doflow.flow.model import BY_AGENT, Profile, Step
from doflow.runs.context import STATE, World
from doflow.runs.state import call_history as accounts, usage as tally
from doflow.runs.state.call_history import Call, Forecast
from doflow.util.records import replace
from doflow.util.text import span


class Prospect:
    """Of one flow: looked up when the first line asks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: dict[str, list[Call]] | None = None

    def of(self, line: Line) -> Forecast:
        """`samples` 0 = of this step nothing was ever counted here, by the agent and the model that would do it now."""
        step = self._world.flow.step(line.step)
        if step is None or not (step.kind in BY_AGENT or step.repair):
            return Forecast()
        found = [call for call in self._history().get(line.step, ()) if call.tells and self._same(call, step)]
        return accounts.forecast(found, phase=line.role == "phase")

    def _same(self, call: Call, step: Step) -> bool:
        """What a rehearsal, another agent or another model took says nothing of this one."""
        if call.role == "fixer" and step.fixer:
            step = replace(step, agent=step.fixer)
        name = self._world.profile_of(step)
        profile = self._world.settings.profile(name) or Profile(name, name)
        model = doers.model(step, profile, self._world)
        return call.agent == name and call.use in ("", profile.use) and call.asked in (None, model)

    def works(self, line: Line) -> bool:
        """Whether an agent would be called for this line."""
        step = self._world.flow.step(line.step)
        return step is not None and line.role in WORK and step.kind in BY_AGENT

    def _history(self) -> dict[str, list[Call]]:
        """Every call of this flow's runs, by step; the items of a step are on its account."""
        if self._calls is None:
            self._calls = {}
            folder = self._world.root / STATE / "runs"
            for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
                path = folder / name / "events.jsonl"
                if _flow(path) == self._world.flow.name:
                    for call in accounts.calls(path, self._world.settings):
                        self._calls.setdefault(call.step.partition(":")[0], []).append(call)
        return self._calls


def shown(found: Forecast) -> str:
    """For a column: the middle, and what nine of ten stay below."""
    if not found.samples:
        return "?"
    if found.usd:
        return f"{tally.dollars(found.usd[0])} (p90 {tally.dollars(found.usd[1])})" if any(found.usd) else "free"
    if found.tokens:
        return f"{tally.short(int(found.tokens[0]))} tokens (p90 {tally.short(int(found.tokens[1]))})"
    return "?"


def sentence(parts: Iterable[tuple[str, Forecast]]) -> str:
    """All of them together, and who is not in it."""
    named = list(parts)
    if not named:
        return ""
    known = [found for _, found in named if found.samples]
    unknown = [name for name, found in named if not found.samples]
    if not known:
        return "cost: unknown, no call of these steps has been counted here yet"
    whole = accounts.summed(known)
    words = [_pair("", whole.usd, tally.dollars) if whole.usd else ""]
    bare = [found for found in known if not found.usd and found.tokens]
    if bare:
        tokens = accounts.summed(bare).tokens
        words.append(_pair("unpriced tokens ", tokens, lambda value: tally.short(int(value))))
    silent = [name for name, found in named if found.samples and not found.usd and not found.tokens]
    words.append(_pair("time ", whole.seconds, lambda value: span(int(value))))
    said = "; ".join(word for word in words if word)
    rest = [*unknown, *silent]
    return f"forecast: {said}" + (f"; unknown: {', '.join(rest)}" if rest else "")


def plain(parts: Iterable[tuple[str, Forecast]]) -> dict[str, Any]:
    named = list(parts)
    return {
        **accounts.summed(found for _, found in named if found.samples).plain(),
        "unknown": [name for name, found in named if not found.samples],
    }


def _pair(what: str, pair: tuple[float, float] | None, form: Any) -> str:
    return f"{what}{form(pair[0])} (p90 {form(pair[1])})" if pair else ""


def _flow(path: os.PathLike[str]) -> str:
    """Of which flow a ledger is: its first line says so."""
    import json

    try:
        with open(path, "rb") as stream:
            return str(json.loads(stream.readline()).get("flow", ""))
    except (OSError, ValueError, AttributeError):
        return ""
