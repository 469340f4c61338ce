"""`pipeline-state.json`: the state of a run for other programs, derived from the event log, written atomically."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from doflow.engine.steps import gate
from doflow.runs.context import RunContext
from doflow.util import atomic_files, deferred
from doflow.util.errors import WorldError
from doflow.util.timestamps import now

_GAP = 0.2
_QUIET = frozenset({"heartbeat", "step_skipped", "resumed", "call_starting", "call_ended"})  # no effect on the state
_SHARE = 50  # write a large state rarely enough to use a fiftieth of the time


class StatusFile:
    """Updated from the event log entries of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._last = 0.0
        self._gap = _GAP
        self._current = ""
        self._status = "active"
        self._why: dict[str, Any] = {}
        self._ends: list[tuple[str, str, dict[str, Any]]] = []
        self._writing = threading.Lock()

    def on_event(self, entry: Mapping[str, Any]) -> None:
        event = entry["event"]
        if event in ("step_starting", "phase_starting"):
            self._current = entry["step"]
            self._status, self._why = "active", {}
        elif event in ("gate", "clarification"):
            self._set("awaiting-approval", entry, pendingApproval={"type": event, "step": entry["step"]})
        elif event == "paused":
            self._set("paused", entry)
        elif event == "rate_limited":
            self._set("rate-limited", entry, resumeAt=entry.get("resumeAt", ""))
        elif event == "waiting":  # the run continues by itself: not an end
            self._status, self._why = "rate-limited", {"pauseReason": entry["message"], "resumeAt": entry["resumeAt"]}
        elif event == "error":
            self._set("failed", entry)
        elif event == "pipeline_complete":
            self._status, self._why = "completed", {}
        if event not in _QUIET:
            self._soon()

    def _soon(self) -> None:
        """Write the file, rate limited: too early, the write is deferred and includes what happens until then.

        A thread never waits for another one here: it may hold a lock that the other one needs.
        """
        moment = self._last + self._gap
        if time.monotonic() < moment or not self._writing.acquire(blocking=False):
            deferred.at(max(moment, time.monotonic()), self._soon)
            return
        try:
            with suppress(WorldError, OSError):  # the event log is authoritative, and the end is written again
                self.write()
        finally:
            self._writing.release()

    def finish(self, status: str, reason: str = "") -> None:
        """Write the final status of a process, in agreement with its exit code."""
        wanted = ("paused", "awaiting-approval") if status == "paused" else (status,)
        matching = [end for end in self._ends if end[0] in wanted]
        if reason:
            self._why = {"pauseReason": reason}
        elif matching:  # the outcome that matches the exit code
            status, self._current, self._why = matching[-1]
        elif status in ("completed", "active"):
            self._why = {}
        self._status = status
        deferred.never(self._soon)
        self.write()

    def write(self) -> None:
        before = time.monotonic()
        path = self._context.state_dir / "pipeline-state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_file(str(path), json.dumps(self.values()).encode() + b"\n", sync=False)
        self._last = time.monotonic()
        self._gap = max(_GAP, _SHARE * (self._last - before))

    def values(self) -> dict[str, Any]:
        book, run = self._context.record, self._context.run
        order = list(self._context.order.active())
        kinds = {step.id: step.kind for step in self._context.flow.steps}
        parts = [name.partition(":") for name in tuple(book.steps)]
        phases = [f"phase_{number}" for name, _, number in parts if number and kinds.get(name) == "implement"]
        return {
            "flow": run.flow,
            "variant": book.variant,
            "pipeline": order,
            "completed": [name for name in order if name in book.steps or self._is_approved_gate(name)],
            "current": "" if self._status == "completed" else self._current,
            "status": self._status,
            "pauseReason": self._why.get("pauseReason", ""),
            "pendingApproval": self._why.get("pendingApproval"),
            "implement_phases_completed": phases,
            "retries": list(book.retries),
            "resumeAt": self._why.get("resumeAt", ""),
            "issue": run.issue,
            "goal": run.goal,
            "branch": run.branch,
            "run": run.name,
            "updated": now(),
        }

    def _is_approved_gate(self, name: str) -> bool:
        """A gate has no record: it is done while what it shows is approved."""
        step = self._context.flow.step(name)
        if step is None or step.kind != "gate":
            return False
        return self._context.frozen or gate.is_approved(step, self._context)

    def _set(self, status: str, entry: Mapping[str, Any], **more: Any) -> None:
        self._current = entry.get("step", self._current)
        self._status = status
        self._why = {"pauseReason": entry.get("message", ""), **more}
        self._ends.append((status, self._current, self._why))
