"""The accounts of a project: every call of every run that this machine's ledgers know, grouped, added up, looked ahead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from doflow.flow.model import Settings, Usage
from doflow.runs.state import usage as tally
from doflow.util.records import dataclass, replace

_MARK = b'"event":"call_ended"'


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an agent. `tokens` None = it did not tell; `usd` None = nobody knows its price."""

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
    free: bool = False  # it could not even be started

    @property
    def tells(self) -> bool:
        """Whether it got to work, so that the next one may take as much."""
        nothing = self.tokens is not None and not any(self.tokens) and not self.usd
        return not self.free and (self.status == "done" or not (nothing or self.status in tally.NOTHING))

    def plain(self) -> dict[str, Any]:
        names = ("in", "out", "cached")
        used = dict(zip(names, self.tokens or (None, None, None), strict=True))
        rest = {name: getattr(self, name) for name in self.__slots__ if name != "tokens"}
        return rest | used


@dataclass(frozen=True, slots=True)
class Sum:
    """Calls added up. `silent`: how many did not tell their tokens; `unpriced`: tokens that have no price."""

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


def calls(path: Path, settings: Settings) -> list[Call]:
    """The calls in one ledger; one without a price gets it from the settings, if they have it by now."""
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
        usd = tally.price(Usage(tokens[0], tokens[1], tokens[2]), settings.profile(agent), model, settings)
    return Call(
        entry["run"], entry["at"], entry["step"], entry.get("phase", ""), entry.get("role", "step"),
        entry.get("persona", ""), entry.get("attempt", 1), agent, model, entry.get("status", ""),
        entry.get("seconds", 0.0), tokens, usd, entry.get("use", ""), entry.get("asked"), bool(entry.get("free")),
    )  # fmt: skip


def grouped(found: Iterable[Call], name: Callable[[Call], str]) -> list[Sum]:
    """One sum for each name, in the order in which the names came up."""
    groups: dict[str, list[Call]] = {}
    for call in found:
        groups.setdefault(name(call), []).append(call)
    return [added(mine, said) for said, mine in groups.items()]


def added(found: Sequence[Call], name: str = "in all") -> Sum:
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
    """What a step took in earlier runs: the middle one, and the one that nine of ten stay below. None = unknown."""

    samples: int = 0
    usd: tuple[float, float] | None = None
    tokens: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None

    def plain(self) -> dict[str, Any]:
        pairs = {name: getattr(self, name) for name in ("usd", "tokens", "seconds")}
        shown = {
            name: dict(zip(("median", "p90"), pair, strict=True)) if pair else None for name, pair in pairs.items()
        }
        return {"samples": self.samples, **shown}


def forecast(found: Iterable[Call], phase: bool) -> Forecast:
    """From the calls of one step: one sample is all that a run spent on it (`phase`: on one phase of it)."""
    samples = grouped(found, lambda call: f"{call.run} {call.phase}" if phase else call.run)
    if not samples:
        return Forecast()
    priced = [one.usd for one in samples if one.usd is not None and not one.unpriced and not one.silent]
    told = [float(one.taken + one.given) for one in samples if one.silent < one.calls]
    return Forecast(
        len(samples), _middle(priced), _middle(told), _middle([one.seconds for one in samples]),
    )  # fmt: skip


def summed(parts: Iterable[Forecast]) -> Forecast:
    """Of several steps together: the middles and the high ends added, as far as they are known."""
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
    """Median and 90th percentile (the nearest value that is there)."""
    if not values:
        return None
    values = sorted(values)
    many = len(values)
    half = values[many // 2] if many % 2 else (values[many // 2 - 1] + values[many // 2]) / 2
    return half, values[min(many - 1, -(-many * 9 // 10) - 1)]
