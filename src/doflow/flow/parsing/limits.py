"""How long, how often, how dear: the limits of a step, each word from the nearest place that says it."""

from __future__ import annotations

from typing import Any

from doflow.flow.model import Budget, Retry
from doflow.flow.parsing import syntax as notation
from doflow.util.errors import UsageError
from doflow.util.process.command import Timeout

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


def budget(text: str) -> Budget:
    """A limit as the command line says it: `5`, `$5`, `500000tokens`, `none`."""
    said = text.strip().lower().removeprefix("$").removesuffix("usd").strip()
    if said == "none":
        return Budget()
    tokens = said.endswith(("tokens", "token"))
    number = said.removesuffix("s").removesuffix("token").strip().replace(",", "").replace("_", "")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise UsageError(f"--budget={text} is no limit", "write US dollars, tokens or none: 5, 500000tokens, none")
    return Budget(tokens=int(value)) if tokens else Budget(usd=value)


def _parts(value: object) -> dict[str, Any]:
    """A lone duration is the longest time in all."""
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {"max": value}
