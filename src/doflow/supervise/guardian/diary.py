"""What a pipeline's layers write into its diary, for whoever watches: which node moves, and where it can be looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any


class Follower:
    """The news of a diary, from the moment this is made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = os.path.getsize(path) if os.path.exists(path) else 0

    def news(self) -> Iterator[str]:
        """Each new entry that a person wants to see, in words."""
        with suppress(OSError), open(self._path, "rb") as stream:
            stream.seek(self._at)
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # its writer is at it
                self._at += len(line)
                with suppress(ValueError):
                    words = told(json.loads(line))
                    if words:
                        yield words


def told(entry: Mapping[str, Any]) -> str:
    """One entry in words; '' = nothing that a person needs to see."""
    if entry.get("event") == "orchestrator_spawned":
        return f"{entry['node']}: attempt {entry['attempt']} works in tmux; watch it: {entry['attach']}"
    if entry.get("event") == "transition":
        note = str(entry.get("note", "")).strip().partition("\n")[0][:120]
        return f"{entry['node']}: {entry['to']}{f' ({note})' if note else ''}"
    return ""
