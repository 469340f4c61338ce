"""What calls of agents used, added up: tokens, US dollars, seconds. What nobody told stays unknown, it is never 0. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from doflow.light import dataclass
from doflow.model import Profile, Settings, Usage

MILLION = 1_000_000


@dataclass(slots=True)
class Spent:
    """A sum. `silent`: calls that ended well and did not tell their tokens; `unpriced`: … whose price nobody knows."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    silent: int = 0
    unpriced: int = 0

    def add(self, entry: Mapping[str, Any], now: bool = True) -> None:
        """One `call_ended` entry of the ledger; not `now` = of an earlier process, whose settings may have been others."""
        usd, told, well = entry.get("usd"), "in" in entry, now and entry.get("status") == "done"
        self.usd += usd or 0.0
        self.tokens += entry.get("in", 0) + entry.get("out", 0)
        self.calls += 1
        self.silent += well and not told
        self.unpriced += well and usd is None


def total(sums: Iterable[Spent]) -> Spent:
    found = Spent()
    for one in sums:
        found.usd += one.usd
        found.tokens += one.tokens
        found.calls += one.calls
        found.silent += one.silent
        found.unpriced += one.unpriced
    return found


def price(usage: Usage | None, profile: Profile | None, model: str, settings: Settings) -> float | None:
    """US dollars of a call: as its program says, else by the table in the settings; None = nobody knows."""
    if usage is None:
        return None
    if usage.usd is not None:
        return usage.usd
    rates = table(profile, model, settings)
    if not rates:
        return None
    cached = min(usage.tokens_cached, usage.tokens_in)
    fresh = usage.tokens_in - cached
    cost = fresh * rates.get("in", 0.0) + cached * rates.get("cached", rates.get("in", 0.0))
    return (cost + usage.tokens_out * rates.get("out", 0.0)) / MILLION


def table(profile: Profile | None, model: str, settings: Settings) -> Mapping[str, float]:
    """The prices that hold for a call: of its model, else of its profile."""
    return settings.prices.get(model) or (profile.price if profile is not None else {})


def dollars(usd: float) -> str:
    """$12.30, $0.042: two digits that say something."""
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 0.0001 else f"${usd:.6f}"


def short(tokens: int) -> str:
    """950, 12k, 1.2M."""
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens // 1000:,}k" if tokens < MILLION else f"{tokens / MILLION:,.1f}M"
