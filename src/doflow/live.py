"""The live view of a terminal."""

from __future__ import annotations

from doflow.view import Plain


class Live(Plain):
    """One line per step."""
