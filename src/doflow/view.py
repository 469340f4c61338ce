"""What a person sees while a flow runs: plain lines, or one JSON object per line. (A terminal gets `live`.)"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from doflow.model import Outcome, Status

Entry = Mapping[str, Any]


class View:
    """Silent: what every other view is built on."""

    def hear(self, entry: Entry) -> None:
        """An entry of the ledger, or a heartbeat."""

    def skipped(self, task: str) -> None:
        """A task is up to date."""

    def stopped(self, task: str, outcome: Outcome) -> None:
        """A task did not end well."""

    def close(self) -> None:
        """The run is over."""

    def about(self, flow: str, run: str) -> None:
        """The flow and the run whose entries come now."""

    @staticmethod
    def choose(as_json: bool, quiet: bool) -> View:
        out = sys.__stdout__
        if quiet or out is None:
            return View()
        if as_json:
            return Lines(out)
        if out.isatty():
            from doflow.live import Live

            return Live(out)
        return Plain(out)


class Lines(View):
    """--json: every line one object."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._run = ""

    def about(self, flow: str, run: str) -> None:
        self._run = run

    def hear(self, entry: Entry) -> None:
        self._put({name: value for name, value in entry.items() if name != "record"})

    def skipped(self, task: str) -> None:
        from doflow.ledger import now

        flow, _, step = task.partition(":")
        if step:
            self._put({"event": "step_skipped", "at": now(), "run": self._run, "flow": flow, "step": step})

    def _put(self, entry: Entry) -> None:
        self._out.write(json.dumps(entry) + "\n")
        self._out.flush()


class Plain(View):
    """Lines as doit prints them, and below each what came of it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began: dict[str, float] = {}
        self._flow = ""
        self._began_any = False

    def hear(self, entry: Entry) -> None:
        event = entry["event"]
        name = f"{entry.get('step', '')}:{entry['phase']}" if entry.get("phase") else entry.get("step", "")
        if event in ("step_starting", "phase_starting"):
            self._began[name] = time.monotonic()
            self._began_any = True
            title = f"  {entry['title']}" if entry.get("title") else ""
            again = f"  (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
            self._say(f".  {self._flow}{name}{title}{again}")
        elif event in ("step_complete", "phase_complete"):
            self._done(name, entry)
        elif event == "run_started":
            self._say(f"run {entry['run']} on branch {entry['branch']}: {entry['dir']}/")
        elif event in ("warning", "adopted"):
            self._say(f"   ! {entry['message']}")
        elif event == "retry":
            self._say(f"   ! {name}: {entry['reason']}; again in {entry['wait']:.0f} s")
        elif event == "pipeline_complete":
            self._say(f"done: {entry['run']} ({entry['flow']})" if self._began_any else f"{entry['run']}: nothing to do")

    def about(self, flow: str, run: str) -> None:
        self._flow = f"{flow}:"

    def skipped(self, task: str) -> None:
        self._say(f"-- {task}")

    def stopped(self, task: str, outcome: Outcome) -> None:
        sign = {Status.PAUSED: "||", Status.RATE_LIMITED: "~~", Status.CANCELLED: "^C"}.get(outcome.status, "xx")
        if outcome.status is Status.CANCELLED:
            return
        until = f" (try again at {outcome.resume_at})" if outcome.resume_at else ""
        self._say(f"{sign} {task}: {outcome.reason}{until}")
        if outcome.hint:
            self._say(f"   next: {outcome.hint}")

    def _done(self, name: str, entry: Entry) -> None:
        took = time.monotonic() - self._began.pop(name, time.monotonic())
        made = ", ".join(entry.get("record", {}).get("made", {}))
        commit = entry.get("commit", "")[:7]
        words = [word for word in (made, commit, f"{took:.0f} s" if took >= 1 else "") if word]
        if words:
            self._say(f"   {' · '.join(words)}")

    def _say(self, line: str) -> None:
        from doflow.words import clean

        try:
            self._out.write(clean(line) + "\n")
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._out = open(os.devnull, "w")  # noqa: PTH123, SIM115 - nobody reads on: the run goes on in silence
