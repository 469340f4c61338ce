"""Cost forecast of pending steps from earlier runs of this project (read from the event logs)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from doflow.agents import selection
from doflow.cli.step_status import WORK, Line
from doflow.flow.model import BY_AGENT, Profile, Step
from doflow.runs import usage
from doflow.runs.context import RunContext
from doflow.runs.usage import Call, Forecast
from doflow.util import state_folder
from doflow.util.text import format_duration


class StepForecasts:
    """Forecasts for the steps of one flow; the history is loaded on first use."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._calls: dict[str, list[Call]] | None = None

    def of(self, line: Line) -> Forecast:
        """The forecast of a step; `samples` 0 = no history with the current agent and model."""
        step = self._context.flow.step(line.step)
        if step is None or not (step.kind in BY_AGENT or step.repair):
            return Forecast()
        found = [call for call in self._history().get(line.step, ()) if call.tells and self._same(call, step)]
        return usage.forecast_usage(found, phase=line.role == "phase")

    def _same(self, call: Call, step: Step) -> bool:
        """Only calls of the same agent and model are used."""
        if call.role == "fixer" and step.fixer:
            step = replace(step, agent=step.fixer)
        name = self._context.profile_of(step)
        profile = self._context.settings.profile(name) or Profile(name, name)
        model = selection.choose_model(step, profile, self._context)
        return call.agent == name and call.use in ("", profile.use) and call.asked in (None, model)

    def works(self, line: Line) -> bool:
        """Whether an agent would be called for this line."""
        step = self._context.flow.step(line.step)
        return step is not None and line.role in WORK and step.kind in BY_AGENT

    def _history(self) -> dict[str, list[Call]]:
        """Every call of this flow's runs, by step; items count for their step."""
        if self._calls is None:
            self._calls = {}
            folder = self._context.root / state_folder.RUNS
            for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
                path = folder / name / "events.jsonl"
                if _flow(path) == self._context.flow.name:
                    for call in usage.load_calls(path, self._context.settings):
                        self._calls.setdefault(call.step.partition(":")[0], []).append(call)
        return self._calls


def format_forecast(found: Forecast) -> str:
    """For a table column: median and 90th percentile."""
    if not found.samples:
        return "?"
    if found.usd:
        return (
            f"{usage.format_dollars(found.usd[0])} (p90 {usage.format_dollars(found.usd[1])})"
            if any(found.usd)
            else "free"
        )
    if found.tokens:
        return f"{usage.format_tokens(int(found.tokens[0]))} tokens (p90 {usage.format_tokens(int(found.tokens[1]))})"
    return "?"


def forecast_line(parts: Iterable[tuple[str, Forecast]]) -> str:
    """The sum of all steps, and the steps without a forecast."""
    named = list(parts)
    if not named:
        return ""
    known = [found for _, found in named if found.samples]
    unknown = [name for name, found in named if not found.samples]
    if not known:
        return "cost: unknown (no history for these steps)"
    whole = usage.sum_forecasts(known)
    words = [_pair("", whole.usd, usage.format_dollars) if whole.usd else ""]
    bare = [found for found in known if not found.usd and found.tokens]
    if bare:
        tokens = usage.sum_forecasts(bare).tokens
        words.append(_pair("unpriced tokens ", tokens, lambda value: usage.format_tokens(int(value))))
    silent = [name for name, found in named if found.samples and not found.usd and not found.tokens]
    words.append(_pair("time ", whole.seconds, lambda value: format_duration(int(value))))
    said = "; ".join(word for word in words if word)
    rest = [*unknown, *silent]
    return f"forecast: {said}" + (f"; unknown: {', '.join(rest)}" if rest else "")


def forecast_values(parts: Iterable[tuple[str, Forecast]]) -> dict[str, Any]:
    named = list(parts)
    return {
        **usage.sum_forecasts(found for _, found in named if found.samples).plain(),
        "unknown": [name for name, found in named if not found.samples],
    }


def _pair(what: str, pair: tuple[float, float] | None, form: Any) -> str:
    return f"{what}{form(pair[0])} (p90 {form(pair[1])})" if pair else ""


def _flow(path: os.PathLike[str]) -> str:
    """The flow of an event log, from its first line."""
    try:
        with open(path, "rb") as stream:
            return str(json.loads(stream.readline()).get("flow", ""))
    except (OSError, ValueError, AttributeError):
        return ""
