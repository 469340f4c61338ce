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


def forecast_steps(lines: Iterable[Line], context: RunContext) -> list[tuple[str, Forecast]]:
    """The forecast of each line that calls an agent; `samples` 0 = no history with the current agent and model."""
    steps = [(line, context.flow.step(line.step)) for line in lines if line.role in WORK]
    called = [(line, step) for line, step in steps if step is not None and step.kind in BY_AGENT]
    history = _history(context) if called else {}
    found = []
    for line, step in called:
        calls = [call for call in history.get(line.step, ()) if call.tells and _is_same_agent(call, step, context)]
        found.append((line.name, usage.forecast_usage(calls, phase=line.role == "phase")))
    return found


def _history(context: RunContext) -> dict[str, list[Call]]:
    """Every call of this flow's runs, by step; items count for their step."""
    calls: dict[str, list[Call]] = {}
    folder = context.root / state_folder.RUNS
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        path = folder / name / "events.jsonl"
        if _flow(path) == context.flow.name:
            for call in usage.load_calls(path, context.settings):
                calls.setdefault(call.step.partition(":")[0], []).append(call)
    return calls


def _is_same_agent(call: Call, step: Step, context: RunContext) -> bool:
    """Whether the call went to the agent and model that the step would use now."""
    if call.role == "fixer" and step.fixer:
        step = replace(step, agent=step.fixer)
    name = context.profile_of(step)
    profile = context.settings.profile(name) or Profile(name, name)
    model = selection.choose_model(step, profile, context)
    return call.agent == name and call.use in ("", profile.use) and call.asked in (None, model)


def format_forecast(found: Forecast) -> str:
    """For a table column: median and 90th percentile."""
    if found.samples and found.usd:
        return _pair("", found.usd, usage.format_dollars) if any(found.usd) else "free"
    if found.samples and found.tokens:
        return f"{usage.format_tokens(int(found.tokens[0]))} tokens (p90 {usage.format_tokens(int(found.tokens[1]))})"
    return "?"


def forecast_line(costs: list[tuple[str, Forecast]]) -> str:
    """The sum of all steps, and the steps without a forecast."""
    known = [found for _, found in costs if found.samples]
    if not known:
        return "cost: unknown (no history for these steps)"
    whole = usage.sum_forecasts(known)
    parts = [_pair("", whole.usd, usage.format_dollars)]
    unpriced = [found for found in known if not found.usd and found.tokens]
    if unpriced:
        tokens = usage.sum_forecasts(unpriced).tokens
        parts.append(_pair("unpriced tokens ", tokens, lambda value: usage.format_tokens(int(value))))
    parts.append(_pair("time ", whole.seconds, lambda value: format_duration(int(value))))
    unknown = [name for name, found in costs if not found.samples]
    unknown += [name for name, found in costs if found.samples and not found.usd and not found.tokens]
    parts.append(f"unknown: {', '.join(unknown)}" if unknown else "")
    return f"forecast: {'; '.join(part for part in parts if part)}"


def forecast_values(costs: list[tuple[str, Forecast]]) -> dict[str, Any]:
    known = usage.sum_forecasts(found for _, found in costs if found.samples).plain()
    return {**known, "unknown": [name for name, found in costs if not found.samples]}


def _pair(what: str, pair: tuple[float, float] | None, form: Any) -> str:
    return f"{what}{form(pair[0])} (p90 {form(pair[1])})" if pair else ""


def _flow(path: os.PathLike[str]) -> str:
    """The flow of an event log, from its first line."""
    try:
        with open(path, "rb") as stream:
            return str(json.loads(stream.readline()).get("flow", ""))
    except (OSError, ValueError, AttributeError):
        return ""
