"""What calls of agents used, added up: tokens, US dollars, seconds. What nobody told stays unknown, it is never 0. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from doflow.flow.model import Profile, Settings, Usage
from doflow.util.records import dataclass, field

MILLION = 1_000_000
#: calls that ended so have used nothing, or next to nothing
NOTHING = frozenset({"rate_limited", "auth"})
_AGAIN = frozenset({"failed", "paused"})


@dataclass(slots=True)
class Spent:
    """A sum. `silent`: calls that did not tell what they used; `unpriced`: those that did, at a price nobody knew."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    silent: int = 0
    unpriced: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, entry: Mapping[str, Any], now: bool = True) -> None:
        """One `call_ended` entry of the ledger; not `now` = of an earlier process. A failure may be tried again at once,
        as often as `retry` says; not by command after command."""
        usd, told, status = entry.get("usd"), "in" in entry, entry.get("status")
        counts = status not in NOTHING and not entry.get("free") and not (now and status in _AGAIN)
        self.usd += usd or 0.0
        self.tokens += entry.get("in", 0) + entry.get("out", 0)
        self.calls += 1
        if counts and not told:
            self.silent += 1
        elif counts and usd is None:
            self.unpriced.append(entry)


def total(sums: Iterable[Spent]) -> Spent:
    found = Spent()
    for one in sums:
        found.usd += one.usd
        found.tokens += one.tokens
        found.calls += one.calls
        found.silent += one.silent
        found.unpriced += one.unpriced
    return found


def priced(spent: Spent, settings: Settings) -> Spent:
    """The same sum by the tables as they are now: somebody may have added a price since."""
    if not spent.unpriced:
        return spent
    found = total((spent,))
    found.unpriced = []
    for entry in spent.unpriced:
        used = Usage(entry["in"], entry["out"], entry.get("cached", 0))
        usd = price(used, settings.profile(entry.get("agent", "")), entry.get("model", ""), settings)
        found.usd += usd or 0.0
        found.unpriced += [entry] if usd is None else []
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
