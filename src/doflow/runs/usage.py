"""Usage accounting: tokens, cost and time of agent calls, their sums, and forecasts from them. Unknown is never 0."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from doflow.flow.model import Profile, Settings, Usage

MILLION = 1_000_000
#: calls with these results used next to nothing
NOTHING = frozenset({"rate_limited", "auth"})
_AGAIN = frozenset({"failed", "paused"})


@dataclass(slots=True)
class Spent:
    """A sum. `silent`: calls that did not report usage; `unpriced`: calls with usage but without a price."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    silent: int = 0
    unpriced: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, entry: Mapping[str, Any], now: bool = True) -> None:
        """Add a `call_ended` entry; not `now` = from an earlier process. Failed calls of this process do not count as silent,
        so that `retry` can repeat them."""
        usd, told, status = entry.get("usd"), "in" in entry, entry.get("status")
        counts = status not in NOTHING and not entry.get("free") and not (now and status in _AGAIN)
        self.usd += usd or 0.0
        self.tokens += entry.get("in", 0) + entry.get("out", 0)
        self.calls += 1
        if counts and not told:
            self.silent += 1
        elif counts and usd is None:
            self.unpriced.append(entry)


def total_spent(sums: Iterable[Spent]) -> Spent:
    found = Spent()
    for one in sums:
        found.usd += one.usd
        found.tokens += one.tokens
        found.calls += one.calls
        found.silent += one.silent
        found.unpriced += one.unpriced
    return found


def apply_prices(spent: Spent, settings: Settings) -> Spent:
    """The same sum with the current price tables: a price may have been added since."""
    if not spent.unpriced:
        return spent
    found = total_spent((spent,))
    found.unpriced = []
    for entry in spent.unpriced:
        used = Usage(entry["in"], entry["out"], entry.get("cached", 0))
        usd = call_price(used, settings.profile(entry.get("agent", "")), entry.get("model", ""), settings)
        found.usd += usd or 0.0
        found.unpriced += [entry] if usd is None else []
    return found


def call_price(usage: Usage | None, profile: Profile | None, model: str, settings: Settings) -> float | None:
    """The cost of a call in US dollars: as reported, else from the price table in the settings; None = unknown."""
    if usage is None:
        return None
    if usage.usd is not None:
        return usage.usd
    rates = price_table(profile, model, settings)
    if not rates:
        return None
    cached = min(usage.tokens_cached, usage.tokens_in)
    fresh = usage.tokens_in - cached
    cost = fresh * rates.get("in", 0.0) + cached * rates.get("cached", rates.get("in", 0.0))
    return (cost + usage.tokens_out * rates.get("out", 0.0)) / MILLION


def price_table(profile: Profile | None, model: str, settings: Settings) -> Mapping[str, float]:
    """The prices for a call: of its model, else of its profile."""
    return settings.prices.get(model) or (profile.price if profile is not None else {})


def format_dollars(usd: float) -> str:
    """$12.30, $0.042: two significant digits."""
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 0.0001 else f"${usd:.6f}"


def format_tokens(tokens: int) -> str:
    """950, 12k, 1.2M."""
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens // 1000:,}k" if tokens < MILLION else f"{tokens / MILLION:,.1f}M"


_MARK = b'"event":"call_ended"'


@dataclass(frozen=True, slots=True)
class Call:
    """One agent call. `tokens` None = not reported; `usd` None = price unknown."""

    run: str
    at: str
    step: str
    phase: str
    role: str
    persona: str
    attempt: int
    agent: str
    model: str
    status: str
    seconds: float
    tokens: tuple[int, int, int] | None = None
    usd: float | None = None
    use: str = ""
    asked: str | None = None  # the model that was asked for; `model` is the one that answered
    free: bool = False  # it could not be started

    @property
    def tells(self) -> bool:
        """Whether the call did some work, so that it can be used for forecasts."""
        nothing = self.tokens is not None and not any(self.tokens) and not self.usd
        return not self.free and (self.status == "done" or not (nothing or self.status in NOTHING))

    def plain(self) -> dict[str, Any]:
        used = dict(zip(("in", "out", "cached"), self.tokens or (None, None, None), strict=True))
        return {name: getattr(self, name) for name in self.__slots__ if name != "tokens"} | used


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum of calls. `silent`: calls that did not report tokens; `unpriced`: tokens without a price."""

    name: str
    calls: int = 0
    taken: int = 0
    given: int = 0
    cached: int = 0
    usd: float | None = None
    seconds: float = 0.0
    silent: int = 0
    unpriced: int = 0

    def plain(self) -> dict[str, Any]:
        names = {"taken": "in", "given": "out"}
        return {names.get(name, name): getattr(self, name) for name in self.__slots__}


def load_calls(path: Path, settings: Settings) -> list[Call]:
    """The calls in one event log; missing prices are taken from the settings."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    found = []
    for raw in data.split(b"\n"):
        if _MARK in raw:
            try:
                found.append(_call(json.loads(raw), settings))
            except (ValueError, KeyError, TypeError):
                continue
    return found


def _call(entry: dict[str, Any], settings: Settings) -> Call:
    tokens = (entry["in"], entry["out"], entry["cached"]) if "in" in entry else None
    usd, model, agent = entry.get("usd"), entry.get("model", ""), entry.get("agent", "")
    if usd is None and tokens is not None:
        usd = call_price(Usage(tokens[0], tokens[1], tokens[2]), settings.profile(agent), model, settings)
    return Call(
        entry["run"], entry["at"], entry["step"], entry.get("phase", ""), entry.get("role", "step"),
        entry.get("persona", ""), entry.get("attempt", 1), agent, model, entry.get("status", ""),
        entry.get("seconds", 0.0), tokens, usd, entry.get("use", ""), entry.get("asked"), bool(entry.get("free")),
    )  # fmt: skip


def group_calls(found: Iterable[Call], name: Callable[[Call], str]) -> list[Sum]:
    """One sum for each name, in order of first appearance."""
    groups: dict[str, list[Call]] = {}
    for call in found:
        groups.setdefault(name(call), []).append(call)
    return [sum_calls(group, title) for title, group in groups.items()]


def sum_calls(found: Sequence[Call], name: str = "in all") -> Sum:
    told = [call.tokens for call in found if call.tokens is not None]
    priced = [call.usd for call in found if call.usd is not None]
    bare = [call.tokens for call in found if call.tokens is not None and call.usd is None]
    return Sum(
        name, len(found), sum(used[0] for used in told), sum(used[1] for used in told), sum(used[2] for used in told),
        sum(priced) if priced else None, sum(call.seconds for call in found), len(found) - len(told),
        sum(used[0] + used[1] for used in bare),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a step used in earlier runs: median and 90th percentile. None = unknown."""

    samples: int = 0
    usd: tuple[float, float] | None = None
    tokens: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None

    def plain(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"samples": self.samples}
        for name in ("usd", "tokens", "seconds"):
            pair = getattr(self, name)
            shown[name] = {"median": pair[0], "p90": pair[1]} if pair else None
        return shown


def forecast_usage(found: Iterable[Call], phase: bool) -> Forecast:
    """Forecast from the calls of one step; a sample is what one run spent on it (`phase`: on one phase of it)."""
    samples = group_calls(found, lambda call: f"{call.run} {call.phase}" if phase else call.run)
    if not samples:
        return Forecast()
    priced = [one.usd for one in samples if one.usd is not None and not one.unpriced and not one.silent]
    told = [float(one.taken + one.given) for one in samples if one.silent < one.calls]
    return Forecast(len(samples), _middle(priced), _middle(told), _middle([one.seconds for one in samples]))


def sum_forecasts(parts: Iterable[Forecast]) -> Forecast:
    """The sum of several forecasts, as far as they are known."""
    found = Forecast()
    for part in parts:
        new = {
            name: (mine[0] + other[0], mine[1] + other[1]) if (mine and other) else mine or other
            for name in ("usd", "tokens", "seconds")
            for mine, other in [(getattr(found, name), getattr(part, name))]
        }
        found = replace(found, samples=max(found.samples, part.samples), **new)
    return found


def _middle(values: list[float]) -> tuple[float, float] | None:
    """Median and 90th percentile (nearest rank)."""
    if not values:
        return None
    return statistics.median(values), sorted(values)[-(-len(values) * 9 // 10) - 1]
