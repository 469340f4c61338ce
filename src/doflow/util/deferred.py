"""Deeds that can wait a moment: done while doflow would only wait for a program, or when 50 ms have passed.

Only what is safe against a killed process already, and would be safe against a power cut a moment later: the ledger's
fsync after a step that cost nothing, doit's memory of it. Many such steps in a row share one fsync. Whoever puts a deed
off also does it when it closes.

A deed with a time of its own (the state that others poll) is done then, by whoever waits for a program or for time to pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 0.05
_owed: dict[Callable[[], None], None] = {}
_since = 0.0
_timed: dict[Callable[[], None], float] = {}


def later(deed: Callable[[], None]) -> None:
    """Do this soon; the same deed twice is one."""
    global _since
    if not _owed:
        _since = time.monotonic()
    _owed[deed] = None


def overdue() -> None:
    """Do all of it, if any has waited long enough."""
    if _owed and time.monotonic() - _since > PATIENCE:
        now()


def now() -> None:
    """Do all of it. Threads may call this side by side."""
    while _owed:
        try:
            deed, _ = _owed.popitem()
        except KeyError:
            return
        deed()


def at(moment: float, deed: Callable[[], None]) -> None:
    """Do this at that moment of the monotonic clock, or soon after."""
    _timed[deed] = moment


def never(deed: Callable[[], None]) -> None:
    """It is not wanted any more."""
    _timed.pop(deed, None)


def due() -> None:
    """Do what has a time of its own that has come. Threads may call this side by side."""
    for deed, moment in tuple(_timed.items()) if _timed else ():
        if moment <= time.monotonic() and _timed.pop(deed, None) is not None:
            deed()


def wait(most: float) -> float:
    """How long one may wait before `due` is to be called: seconds, at most so many."""
    moments = tuple(_timed.values())
    return min(most, max(0.0, min(moments) - time.monotonic())) if moments else most
