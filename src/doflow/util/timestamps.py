"""Timestamps: ISO 8601, UTC, with a `Z`; in three precisions.

Imports little: every hook imports this.
"""

from __future__ import annotations

import time

_FORM = "0000-00-00T00:00:00"
_second = (0, "")


def now() -> str:
    """In milliseconds: the event log, and the default."""
    global _second
    seconds, rest = divmod(time.time_ns() // 1_000_000, 1000)
    if _second[0] != seconds:
        _second = (seconds, _text(seconds))
    return f"{_second[1]}.{rest:03d}Z"


def format_seconds(moment: float | None = None) -> str:
    """In whole seconds, of a moment since 1970 (default: now): hooks, quarantine, rate limits."""
    return _text(time.time() if moment is None else moment) + "Z"


def format_microseconds(nanoseconds: int | None = None) -> str:
    """In microseconds, of nanoseconds since 1970 (default: now): signals, and the log of a supervised pipeline."""
    seconds, rest = divmod(time.time_ns() if nanoseconds is None else nanoseconds, 10**9)
    return f"{_text(seconds)}.{rest // 1000:06d}Z"


def parse(text: str) -> float:
    """Seconds since 1970, of a text in any of these precisions; ValueError for anything else."""
    import calendar  # not at the top: most hooks only write the time

    whole, dot, rest = text.removesuffix("Z").partition(".")
    form = "".join("0" if "0" <= char <= "9" else char for char in whole)
    if not text.endswith("Z") or form != _FORM or (dot and not (rest.isascii() and rest.isdecimal())):
        raise ValueError(f"{text!r} is not a timestamp in doflow's format")
    numbers = (whole[:4], whole[5:7], whole[8:10], whole[11:13], whole[14:16], whole[17:])
    return calendar.timegm(tuple(int(number) for number in numbers)) + float(f"0.{rest or 0}")


def _text(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
