"""How long, how often, how dear: the limits of a step, each word from the nearest place that says it."""

from __future__ import annotations

from typing import Any

from doflow import notation
from doflow.model import Budget, Retry, Timeout

WORDS = ("timeout", "retry", "budget")


def make(word: str, *layers: object) -> Timeout | Retry | Budget:
    """The limit called `word`; later layers win, word by word."""
    said: dict[str, Any] = {}
    for layer in layers:
        said.update(_parts(layer))
    if word == "timeout":
        return Timeout(**{part: notation.seconds(value) for part, value in said.items()})
    if word == "retry":
        base = Retry()
        return Retry(int(said.get("attempts", base.attempts)), notation.seconds(said.get("backoff", base.backoff)))
    usd, tokens = said.get("usd"), said.get("tokens")
    return Budget(None if usd is None else float(usd), None if tokens is None else int(tokens))


def _parts(value: object) -> dict[str, Any]:
    """A lone duration is the longest time in all."""
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {"max": value}
