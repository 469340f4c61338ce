"""A snapshot on disk while agents work: whole once, and then only what differs from that. For the start after a kill."""

from __future__ import annotations

import json
import os
from typing import Any

from doflow.guard.snapshot import entries as contents
from doflow.guard.snapshot.entries import Item, Snapshot
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError


class Window:
    """`window` is there while agents work; `window.base` is what it is told against."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.commands: tuple[str, ...] = ()
        self.heard: frozenset[str] = frozenset()  # what doflow's own words went to, then
        self._whole: Snapshot | None = None
        self._name = ""

    def write(self, now: Snapshot, commands: tuple[str, ...] = ()) -> None:
        """Not synced: a killed process loses nothing by it. `commands`: the jobs of which a command is at work, and of
        nobody an agent."""
        self.commands = commands
        if self._whole is None or len(now.items) > 2 * len(self._whole.items):
            self._whole, self._name = now, os.urandom(8).hex()
            rows = [_row(path, item) for path, item in now.items.items()]
            whole = {"name": self._name, "taken": now.taken, "items": rows, "folders": sorted(now.folders)}
            self._put(f"{self.path}.base", whole)
        old = self._whole
        rows = [_row(path, item) for path, item in now.items.items() if old.items.get(path) is not item]
        told = {"name": self._name, "taken": now.taken, "items": rows}
        told |= {"gone": sorted(old.items.keys() - now.items.keys())}
        told |= {"more": sorted(now.folders - old.folders), "less": sorted(old.folders - now.folders)}
        told |= {"commands": commands, "heard": sorted(self.heard)}
        self._put(self.path, told)

    def read(self) -> Snapshot | None:
        """None if no agent was at work."""
        if not os.path.exists(self.path):
            return None
        try:
            told, whole = self._get(self.path), self._get(f"{self.path}.base")
            if told["name"] != whole["name"]:
                raise ValueError("its two parts do not belong together")
            items = {row[0]: contents.item(row) for row in whole["items"]}
            items |= {row[0]: contents.item(row) for row in told["items"]}
            for path in told["gone"]:
                items.pop(path, None)
            self.commands = tuple(map(str, told.get("commands", ())))
            self.heard = frozenset(told.get("heard", ()))
            folders = (frozenset(whole["folders"]) | frozenset(told["more"])) - frozenset(told["less"])
            return Snapshot(int(told["taken"]), items, folders)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorldError(
                f"the snapshot {self.path} cannot be read: {error}",
                hint=f"what the interrupted step changed is not undone; look (git status), then: rm '{self.path}'",
            ) from error

    def last(self) -> Snapshot | None:
        """What an earlier process saw: whatever has the same stat since need not be read again."""
        try:
            whole = self._get(f"{self.path}.base")
            items = {row[0]: contents.item(row) for row in whole["items"]}
            return Snapshot(int(whole["taken"]), items, frozenset(whole["folders"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def close(self) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def _put(self, path: str, told: dict[str, object]) -> None:
        files.write(path, json.dumps(told, separators=(",", ":")).encode(), mode=0o600, sync=False)

    def _get(self, path: str) -> dict[str, Any]:
        with open(path, "rb") as stream:
            told = json.load(stream)
        if not isinstance(told, dict):
            raise ValueError("not a snapshot")
        return told


def _row(path: str, item: Item) -> tuple[object, ...]:
    return (path, item.kind, item.mode, item.value, item.blob, item.stat)
