"""Command context: resolves the project and the run."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doflow.config import project
from doflow.engine.doit import tasks
from doflow.engine.lifecycle.session import ActiveRun, Session
from doflow.flow.model import Step
from doflow.git import head_reader
from doflow.runs import catalogue, session_layout
from doflow.runs.catalogue import Run
from doflow.runs.mutex import Holder
from doflow.util.errors import UsageError


class CommandContext:
    """The project of a command: nothing is written unless `changing` is entered."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or project.find()
        self.session = Session(self.root, os.environ)

    def runs(self) -> tuple[Run, ...]:
        return catalogue.list_runs(self.root, self.session.project.layout)

    def run(self, name: str = "", flow: str = "") -> Run:
        """By name or number; else the run of the current branch; else the latest."""
        known = [run for run in self.runs() if not flow or run.flow == flow]
        if name:
            found = [run for run in known if catalogue.is_named(run, name)]
            if not found:
                names = ", ".join(run.name for run in known) or "none yet"
                raise UsageError(f"no run named {name} (runs: {names})", "doflow status lists them")
            return found[0]
        if not known and not project.is_project(self.root):
            raise UsageError(f"not a doflow project: {self.root}", "doflow init")
        if not known:
            raise UsageError("no runs yet", 'doit FLOW --goal="…" starts one; doit list shows the flows')
        branch = head_reader.find_head(str(self.root)).branch
        known = [run for run in known if not session_layout.parent_session(run.dir)] or known
        return next((run for run in reversed(known) if run.branch == branch), known[-1])

    def work(self, run: Run, **options: Any) -> ActiveRun:
        """Open a run as the next `doit FLOW` would see it."""
        if run.trouble is not None:
            raise run.trouble
        if run.flow not in self.session.project.about:
            missing = f"run {run.name} uses the flow {run.flow}, which does not exist"
            raise UsageError(self.session.project.broken.get(run.flow) or missing, "doflow validate")
        return tasks.open_run(self.session, run.flow, {"run": run.name, **options})

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the run lock: refused while a run of this project is active."""
        holder = Holder(self.root, self.session.command)
        holder.take()
        self.session.holder = holder
        try:
            yield
        finally:
            holder.release()
            self.session.holder = None
            for work in self.session.works.values():
                work.context.close()

    @staticmethod
    def step(work: ActiveRun, name: str) -> Step:
        step = work.context.step(name.removeprefix(f"{work.context.flow.name}:"))
        if step is None:
            known = [found.id for found in work.context.flow.steps]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "doflow status"
            raise UsageError(f"{work.context.flow.name} has no step {name} (it has: {', '.join(known)})", hint)
        return step
