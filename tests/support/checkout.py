"""Where the checkout and its sources are."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).parents[2]
SOURCES = TOP / "src" / "doflow"
