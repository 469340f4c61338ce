"""What a command needs on its desk: the project, the run that is meant, its world."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doflow.config import project
from doflow.engine.doit import tasks
from doflow.engine.lifecycle.session import Session, Work
from doflow.flow.model import Step
from doflow.git import repository as look
from doflow.runs import catalogue as runs, session_layout as sessionpaths
from doflow.runs.catalogue import Run
from doflow.runs.mutex import Holder
from doflow.util.errors import UsageError


class Desk:
    """A project looked at: nothing is written unless `changing` is entered."""

    def __init__(self, root: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.session = Session(root or project.find(), os.environ if environ is None else environ)

    @property
    def root(self) -> Path:
        return self.session.root

    def runs(self) -> tuple[Run, ...]:
        return runs.known(self.root, self.session.project.layout)

    def run(self, name: str = "", flow: str = "") -> Run:
        """By name or number; else the run of the branch that is checked out; else the latest."""
        known = [run for run in self.runs() if not flow or run.flow == flow]
        if name:
            found = [run for run in known if runs.is_called(run, name)]
            if not found:
                names = ", ".join(run.name for run in known) or "none yet"
                raise UsageError(f"there is no run {name} (there are: {names})", "doflow status lists them")
            return found[0]
        if not known and not project.begun(self.root):
            raise UsageError(f"{self.root} is no project of doflow's yet", "doflow init   makes it one")
        if not known:
            raise UsageError("there is no run here yet", 'doit FLOW --goal="…" starts one; doit list shows the flows')
        branch = look.find(str(self.root)).branch
        known = [run for run in known if not sessionpaths.parent(run.dir)] or known
        return next((run for run in reversed(known) if run.branch == branch), known[-1])

    def work(self, run: Run, **options: Any) -> Work:
        """The world of a run, as the next `doit FLOW` would see it."""
        if run.trouble is not None:
            raise run.trouble
        if run.flow not in self.session.project.about:
            broken = self.session.project.broken.get(run.flow)
            raise UsageError(
                broken or f"run {run.name} is of the flow {run.flow}, which is not here", "doflow validate"
            )
        return tasks.open_work(self.session, run.flow, {"run": run.name, **options})

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Under the run lock: refused while an agent of this project works."""
        holder = Holder(self.root, self.session.command)
        holder.take()
        self.session.holder = holder
        try:
            yield
        finally:
            holder.release()
            self.session.holder = None
            for work in self.session.works.values():
                work.world.close()

    @staticmethod
    def step(work: Work, name: str) -> Step:
        step = work.world.step(name.removeprefix(f"{work.world.flow.name}:"))
        if step is None:
            import difflib

            known = [found.id for found in work.world.flow.steps]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "doflow status"
            raise UsageError(f"{work.world.flow.name} has no step {name} (it has: {', '.join(known)})", hint)
        return step
