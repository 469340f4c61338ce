"""Output while a flow runs: plain lines, or one JSON object per line. (A terminal gets `live`.)"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from doflow.util import hints
from doflow.util.hints import Target
from doflow.util.text import clean
from doflow.util.timestamps import now

if TYPE_CHECKING:
    from doflow.flow.model import Outcome

Entry = Mapping[str, Any]

SIGNS = {"paused": "||", "rate_limited": "~~"}


class View:
    """Base class: prints nothing."""

    def on_event(self, entry: Entry) -> None:
        """An entry of the event log, or a heartbeat."""

    def skipped(self, task: str) -> None:
        """A task is up to date."""

    def stopped(self, task: str, outcome: Outcome) -> None:
        """A task did not succeed."""

    def close(self) -> None:
        """The run is over."""

    def about(self, flow: str, run: str, target: Target | None = None) -> None:
        """Associate the entries of a run with the tasks of its flow."""

    def aside(self, task: str = "") -> None:
        """Clear the live region: other output about this task follows."""


class Lines(View):
    """--json: every line one object."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._runs: dict[str, str] = {}

    def about(self, flow: str, run: str, target: Target | None = None) -> None:
        self._runs[flow] = run

    def on_event(self, entry: Entry) -> None:
        self._put({name: value for name, value in entry.items() if name != "record"})

    def skipped(self, task: str) -> None:
        flow, _, step = task.partition(":")
        if step:
            about = {"run": self._runs.get(flow, ""), "flow": flow, "step": step}
            self._put({"event": "step_skipped", "at": now(), **about})

    def _put(self, entry: Entry) -> None:
        self._out.write(json.dumps(entry) + "\n")
        self._out.flush()


class Plain(View):
    """Lines as doit prints them, each followed by its result."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began: dict[str, float] = {}
        self._flows: dict[str, str] = {}
        self._targets: dict[str, Target] = {}
        self._did = False
        self._last = ""

    def on_event(self, entry: Entry) -> None:
        event, name = entry["event"], self._name(entry)
        if event in ("step_starting", "phase_starting"):
            self._began[name] = time.monotonic()
            self._did = True
            self._starts(name, entry)
        elif event == "resumed":
            self._began[name] = time.monotonic()
            self._head(name, f".  {name}  (resuming from the previous result)")
        elif event in ("step_complete", "phase_complete"):
            self._did = True
            self._done(name, entry)
        elif event == "run_started":
            base = entry.get("base") or ""
            upon = f" (on top of {base}, another run)" if base != entry["branch"] and base[:3].isdigit() else ""
            self._say(f"run {entry['run']} on branch {entry['branch']}{upon}: {entry['dir']}/")
        elif event == "session":
            self._say(f"   {entry['message']}")
        elif event in ("warning", "adopted"):
            self._say(f"   ! {entry['message']}")
            if entry.get("hint"):
                self._say(f"     {entry['hint']}")
        elif event == "waiting":
            self._say(f"~~ {name}: {entry['message']}")
        elif event == "retry":
            self._say(f"   ! {name}: {entry['reason']}; retrying in {entry['wait']:.0f} s")
        elif event == "pipeline_complete":
            done, nothing = f"done: {entry['run']} ({entry['flow']})", f"{entry['run']}: nothing to do"
            self._say(done if self._did else nothing)

    def about(self, flow: str, run: str, target: Target | None = None) -> None:
        self._flows[run] = flow
        if target is not None:
            self._targets[flow] = target

    def skipped(self, task: str) -> None:
        self._say(f"-- {task}")

    def stopped(self, task: str, outcome: Outcome) -> None:
        if outcome.status.value == "cancelled":
            return
        known = any(step.at for step in outcome.next)
        until = f" (try again at {outcome.resume_at})" if outcome.resume_at and not known else ""
        self._say(f"{SIGNS.get(outcome.status.value, 'xx')} {task}: {outcome.reason}{until}")
        flow = task.partition(":")[0]
        target = self._targets.get(flow)
        if hint := hints.text(outcome.hint, outcome.next, target):
            self._say(f"   next: {hint}")
        if not hints.resumes(outcome.next):
            self._say(f"   then: {hints.command_text(('doit', flow), target)}")

    def _name(self, entry: Entry) -> str:
        """The step or phase as doit calls it."""
        parts = (self._flows.get(entry["run"], ""), entry.get("step", ""), entry.get("phase", ""))
        return ":".join(part for part in parts if part)

    def _starts(self, name: str, entry: Entry) -> None:
        self._head(name, self._heading(name, entry))

    def _heading(self, name: str, entry: Entry) -> str:
        title = f"  {entry['title']}" if entry.get("title") else ""
        again = f"  (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
        return f".  {name}{title}{again}"

    def _head(self, name: str, line: str) -> None:
        self._last = name
        self._say(line)

    def _done(self, name: str, entry: Entry) -> None:
        took = time.monotonic() - self._began.pop(name, time.monotonic())
        made = ", ".join(entry.get("record", {}).get("made", {}))
        commit = entry.get("commit", "")[:7]
        words = [word for word in (made, commit, f"{took:.0f} s" if took >= 1 else "") if word]
        if words:
            whose = "" if self._last == name else f"{name}: "
            self._say(f"   {whose}{' · '.join(words)}")

    def _say(self, line: str) -> None:
        coding = self._out.encoding or "utf-8"
        try:
            self._out.write(clean(line).encode(coding, "backslashreplace").decode(coding) + "\n")
            self._out.flush()
        except (OSError, ValueError):
            self._out = open(os.devnull, "w")  # noqa: SIM115 - the reader is gone: continue without output
