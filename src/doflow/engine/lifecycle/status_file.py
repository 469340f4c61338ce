"""`pipeline-state.json`: the state of a run for other programs, derived from the ledger, written whole, by one writer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from doflow.runs.context import World
from doflow.util import atomic_files as files, deferred as idle
from doflow.util.errors import WorldError
from doflow.util.timestamps import now

_GAP = 0.2
_QUIET = frozenset({"heartbeat", "step_skipped", "resumed", "call_starting", "call_ended"})  # they change nothing in it
_SHARE = 50  # a large state is written seldom enough to cost a fiftieth of the time


class Projection:
    """Listens to the ledger's entries of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0.0
        self._gap = _GAP
        self._current = ""
        self._status = "active"
        self._why: dict[str, Any] = {}
        self._heard: list[tuple[str, str, dict[str, Any]]] = []
        self._begun = False
        self._writing = threading.Lock()

    def hear(self, entry: Mapping[str, Any]) -> None:
        event = entry["event"]
        if event in ("step_starting", "phase_starting"):
            self._current = entry["step"]
            self._status, self._why = "active", {}
            self._begun = True
        elif event == "retry":
            self._world.book.retries.append({k: entry[k] for k in ("step", "attempt", "reason", "at") if k in entry})
        elif event in ("gate", "clarification"):
            kind = "gate" if event == "gate" else "clarification"
            self._set("awaiting-approval", entry, pendingApproval={"type": kind, "step": entry["step"]})
        elif event == "paused":
            self._set("paused", entry)
        elif event == "rate_limited":
            self._set("rate-limited", entry, resumeAt=entry.get("resumeAt", ""))
        elif event == "waiting":  # it goes on by itself: not an end
            self._status, self._why = "rate-limited", {"pauseReason": entry["message"], "resumeAt": entry["resumeAt"]}
        elif event == "error":
            self._set("failed", entry)
        elif event == "pipeline_complete":
            self._status, self._why = "completed", {}
        if event not in _QUIET:
            self._soon()

    def _soon(self) -> None:
        """Write it, but not more often than it may be: then a moment later, whatever has happened until then.

        A thread never waits here for another one: it may hold what that one needs.
        """
        moment = self._last + self._gap
        if time.monotonic() < moment or not self._writing.acquire(blocking=False):
            idle.at(max(moment, time.monotonic()), self._soon)
            return
        try:
            with suppress(WorldError, OSError):  # derived: what matters is in the ledger, and the end is written again
                self.write()
        finally:
            self._writing.release()

    def finish(self, status: str, reason: str = "") -> None:
        """The last word of a process: the status that agrees with its exit code."""
        wanted = ("paused", "awaiting-approval") if status == "paused" else (status,)
        told = [found for found in self._heard if found[0] in wanted]
        if reason:
            self._why = {"pauseReason": reason}
        elif told:  # of several outcomes the one that the exit code stands for
            status, self._current, self._why = told[-1]
        elif status in ("completed", "active"):
            self._why = {}
        self._status = status
        idle.never(self._soon)
        self.write()

    def write(self) -> None:
        began = time.monotonic()
        path = self._world.state_dir / "pipeline-state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.values())
        files.write(str(path), text.encode() + b"\n", sync=False)
        self._last = time.monotonic()
        self._gap = max(_GAP, _SHARE * (self._last - began))

    def values(self) -> dict[str, Any]:
        book, run = self._world.book, self._world.run
        order = list(self._world.order())
        kinds = {step.id: step.kind for step in self._world.flow.steps}
        parts = [name.partition(":") for name in tuple(book.steps)]
        phases = [f"phase_{number}" for name, _, number in parts if number and kinds.get(name) == "implement"]
        return {
            "flow": run.flow,
            "variant": book.variant,
            "pipeline": order,
            "completed": [
                name for name in order if name in book.steps or (kinds.get(name) == "gate" and self._yes(name))
            ],
            "current": "" if self._status == "completed" else self._current,
            "status": self._status,
            "pauseReason": self._why.get("pauseReason", ""),
            "pendingApproval": self._why.get("pendingApproval"),
            "implement_phases_completed": phases,
            "retries": book.retries,
            "resumeAt": self._why.get("resumeAt", ""),
            "issue": run.issue,
            "goal": run.goal,
            "branch": run.branch,
            "run": run.name,
            "updated": now(),
        }

    def _yes(self, name: str) -> bool:
        """A gate has no record of its own: it is done while there is a yes to what it shows."""
        from doflow.engine.steps import gate

        step = self._world.flow.step(name)
        return step is not None and (self._world.frozen or gate.approved(step, self._world))

    def _set(self, status: str, entry: Mapping[str, Any], **more: Any) -> None:
        self._current = entry.get("step", self._current)
        self._status = status
        self._why = {"pauseReason": entry.get("message", ""), **more}
        self._heard.append((status, self._current, self._why))
