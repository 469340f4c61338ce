"""Issue numbers as people write them: `#232`, ` 232 `, `none`. Pure."""

from __future__ import annotations


def bare(text: str) -> str | None:
    """The issue without its dress; '' = no issue (`none`), None = nothing that could be one."""
    words = text.strip().lstrip("#").strip().casefold()
    if not words:
        return None
    return "" if words == "none" else words


def same(one: str, other: str) -> bool:
    """Do two runs, or a run and a file, mean the same issue? An empty text means no issue."""
    return (bare(one) or "") == (bare(other) or "")


def shown(text: str) -> str:
    """As it is written into files: `#232`, else the words themselves, else `none`."""
    words = bare(text) or ""
    return (f"#{words}" if words.isdecimal() else text.strip()) if words else "none"
