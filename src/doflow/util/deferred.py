"""Deferred calls: made while doflow waits for a program anyway, or after 50 ms.

Only for what is already safe against a killed process and may reach the disk a moment later: the fsync of the event log
after a step that cost nothing, doit's database. A caller that defers a call also makes it when it closes. A call with
its own time (state that others poll) is made then, by the thread that waits for a program or sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 0.05
_owed: dict[Callable[[], None], None] = {}
_since = 0.0
_timed: dict[Callable[[], None], float] = {}


def later(deed: Callable[[], None]) -> None:
    """Make this call soon; the same call deferred twice is made once."""
    global _since
    if not _owed:
        _since = time.monotonic()
    _owed[deed] = None


def overdue() -> None:
    """Make all deferred calls, if any has waited long enough."""
    if _owed and time.monotonic() - _since > PATIENCE:
        now()


def now() -> None:
    """Make all deferred calls. Thread-safe."""
    while _owed:
        try:
            deed, _ = _owed.popitem()
        except KeyError:
            return
        deed()


def at(moment: float, deed: Callable[[], None]) -> None:
    """Make this call at that time of the monotonic clock, or soon after."""
    _timed[deed] = moment


def never(deed: Callable[[], None]) -> None:
    """Cancel it."""
    _timed.pop(deed, None)


def due() -> None:
    """Make the timed calls that are due. Thread-safe."""
    for deed, moment in tuple(_timed.items()) if _timed else ():
        if moment <= time.monotonic() and _timed.pop(deed, None) is not None:
            deed()


def wait(most: float) -> float:
    """Seconds to wait until `due` must be called, at most `most`."""
    moments = tuple(_timed.values())
    return min(most, max(0.0, min(moments) - time.monotonic())) if moments else most
