"""Errors before a run exists, for programs: one JSON object with the same keys as every line of `--json`."""

from __future__ import annotations

import json
from typing import Any

from doflow.util.timestamps import now

_HINT = "\n  hint: "


def line(words: str, hint: str = "", **more: Any) -> str:
    """The object as one line; a hint that stands at the end of the words is taken out of them."""
    if not hint and words.count(_HINT) == 1:
        words, _, hint = words.partition(_HINT)
    return json.dumps({"event": "error", "at": now(), "run": "", "message": words, "hint": hint, **more}) + "\n"
