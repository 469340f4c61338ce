"""Lines of JSON and the time in them, as every record of doflow writes it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

Entry = Mapping[str, Any]


def line(entry: Entry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def now() -> str:
    """The time as every record of doflow writes it: ISO 8601, UTC, milliseconds."""
    global _second
    seconds, rest = divmod(time.time_ns() // 1_000_000, 1000)
    if _second[0] != seconds:
        _second = (seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)))
    return f"{_second[1]}.{rest:03d}Z"


_second = (0, "")
