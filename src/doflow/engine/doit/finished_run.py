"""doit's `run` command: answers "nothing to do" for a finished flow from its up-to-date stamp.

doit loads this module at every start. The rest is imported only if there is something to run or to show.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from doit.cmd_base import DodoTaskLoader
from doit.cmd_run import Run

from doflow.config import uptodate_stamp
from doflow.engine.view_text import Plain
from doflow.util import stdio
from doflow.util.timestamps import now

_DODO = ["import doflow", "globals().update(doflow.dodo())"]
_OPTIONS = ("--goal", "--run")


class AnyRun(Run):  # type: ignore[misc]
    """`doit FLOW`: answers at once if there is nothing to do, else delegates to `FlowRun`."""

    name = "run"

    def parse_execute(self, in_args: list[str]) -> int:
        stamp = self._stamp(in_args)
        if stamp is not None:
            return _nothing_to_do(in_args[0], stamp)
        # everything above answers without importing what runs flows
        from doflow.engine.doit.command import FlowRun

        given = {"config": self.config, "bin_name": self.bin_name, "opt_vals": self.opt_vals}
        command = FlowRun(task_loader=self.loader, **given)
        try:
            return int(command.parse_execute(in_args))
        finally:
            self.pdb = command.pdb

    def _stamp(self, words: list[str]) -> dict[str, object] | None:
        """The stamp that answers this command line, if no other options or settings apply."""
        plain = type(self.loader) is DodoTaskLoader and not self.config_vals and not self.opt_vals
        if not words or not plain or words != sys.argv[1:] or sys.stdout is None or sys.stdout.isatty():
            return None
        if any(name in os.environ for name in ("PRP_PIPELINE_RUNNING", "DOIT_FILE", "DOIT_SEEK_FILE")):
            return None
        flow, *options = words
        asked = dict(option.partition("=")[::2] for option in options)
        if not asked.keys() <= set(_OPTIONS) or not all("=" in option for option in options) or not _only_ours():
            return None
        if flow.startswith("-") or not flow.replace("-", "").isidentifier():
            return None
        root = uptodate_stamp.find_project_root()
        return uptodate_stamp.valid_stamp(root, flow, asked.get("--goal"), asked.get("--run", ""), dict(os.environ))


def _only_ours() -> bool:
    """Does dodo.py contain only the two lines that doflow init writes?"""
    try:
        with open("dodo.py", encoding="utf-8") as stream:
            lines = [line.strip() for line in stream]
    except (OSError, ValueError):
        return False
    return [line for line in lines if line and not line.startswith("#")] == _DODO


def _nothing_to_do(flow: str, stamp: dict[str, Any]) -> int:
    stdio.open_(patient=True)
    view = Plain(sys.stdout)
    view.about(flow, stamp["run"])
    for name in stamp["steps"]:
        view.skipped(name)
    view.on_event({"event": "pipeline_complete", "at": now(), "run": stamp["run"], "flow": flow})
    return 0
