"""The state of one process: its flows, their runs, and the exit code. Created by `tasks`, finished by `command`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from doflow.agents import selection
from doflow.config import project, uptodate_stamp
from doflow.engine.lifecycle import finish, start
from doflow.engine.view_live import Live, fits
from doflow.engine.view_text import Lines, Plain, View
from doflow.git import head_reader, stale_locks
from doflow.guard.workspace.kinds import Workspaces
from doflow.runs import next_steps, session_layout
from doflow.runs.mutex import Holder
from doflow.supervise import pane_call
from doflow.util import atomic_files, deferred, state_folder, timestamps
from doflow.util.errors import DoflowError
from doflow.util.process import notify, runner

if TYPE_CHECKING:
    from doflow.engine.lifecycle.status_file import StatusFile
    from doflow.flow.model import Outcome
    from doflow.runs.context import RunContext

CODES = {"done": 0, "paused": 2, "rate_limited": 3, "cancelled": 130}
_RANK = {0: 0, 2: 1, 3: 2, 1: 3, 130: 4}


class ActiveRun:
    """A run that this process works on."""

    def __init__(self, context: RunContext, status_file: StatusFile) -> None:
        self.context = context
        self.status_file = status_file
        self.slots = StepSlots()
        self.entered = self.started = False
        self.whole = False
        self.back: tuple[str, ...] = ()  # paths restored after a killed process
        self.dot_mirror: Any = None  # writes the statuses of a DOT pipeline back into its file
        self.ends: dict[str, Mapping[str, Any]] = {}
        self.asked: dict[str, Outcome] = {}  # gates that have asked in this process: each asks once

    @cached_property
    def fence(self) -> Workspaces:
        return Workspaces(self.context)

    @property
    def written(self) -> bool:
        """Is the run on disk, even if its start was interrupted? Then its end must be logged, too."""
        return self.entered and (not self.context.run.fresh or "run_started" in self.ends)


class Session:
    """One per process. `executing` is set by the run command; without it nothing is written."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.environ = environ
        selection.register_transport("tmux", pane_call)
        self.words: Sequence[str] = ()
        self.executing = False
        self.asked: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.code = 0
        self.json = False
        self.quiet = False
        self.always = False
        self.limited: Outcome | None = None
        self.busy: set[object] = set()  # running steps: they stop by themselves on a signal
        self.works: dict[str, ActiveRun] = {}
        self.stamped: dict[str, str] = {}
        self.holder: Holder | None = None
        self._view: View | None = None
        self._warned: set[str] = set()
        self._makers: dict[str, str] = {}

    @cached_property
    def project(self) -> project.Project:
        return project.open_project(self.root, self.environ, self.words)

    @property
    def view(self) -> View:
        if self._view is None:
            self._view = self._choose()
        return self._view

    def note(self, code: int) -> None:
        """Keep the worst exit code: interrupted, error, rate limit, pause."""
        if _RANK.get(code, 3) > _RANK.get(self.code, 3):
            self.code = code

    def on_event(self, entry: Mapping[str, Any]) -> None:
        for work in self.works.values():
            if work.context.run.name == entry["run"]:
                work.status_file.on_event(entry)
                if work.dot_mirror is not None:
                    work.dot_mirror.on_event(entry)
                work.ends[entry["event"]] = entry
        self.view.on_event(entry)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """A running step stops and restores the working tree; anything else is interrupted."""
        runner.stop_all(0.0 if runner.stopping() else 5.0)  # a second signal does not wait
        if not self.busy:
            raise KeyboardInterrupt

    def add(self, work: ActiveRun) -> None:
        self.works[work.context.flow.name] = work
        if self.executing:
            self.view.about(work.context.flow.name, work.context.run.name, work.context.target)

    def found(self, flow: str, run: str) -> None:
        """A run that is complete by its stamp: it is not opened."""
        self.stamped[flow] = run
        self.view.about(flow, run)

    def declare(self, task: str, targets: Sequence[str]) -> list[str]:
        """The files that no other task has as a target: doit rejects duplicate targets."""
        return [path for path in targets if self._makers.setdefault(path, task) == task]

    def lock(self) -> None:
        """Take the run lock; called for the first flow that has something to do or to check."""
        if self.holder is None:
            holder = Holder(self.root, self.command)
            holder.take()
            self.holder = holder
            if holder.left:
                self._succeed(holder)

    def _succeed(self, holder: Holder) -> None:
        """Clean up after a killed run: kill its processes, remove its stale git locks."""
        for place, _, _ in os.walk(self.root / state_folder.STORE):
            atomic_files.remove_temporaries(place)
        if holder.dead:
            marks = f"{runner.MARK}={holder.dead}.*".encode(), os.fsencode(f"DOFLOW_RUN_DIR={self.root}/*")
            if killed := runner.kill_marked(*marks):
                many = f"{len(killed)} process{'es' if len(killed) > 1 else ''}"
                names = ", ".join(map(str, sorted(killed)))
                self.warn(f"killed {many} left over from an interrupted run: {names}")
        freed = stale_locks.remove_stale_locks(head_reader.find_head(str(self.root)), holder.left)
        if freed:
            self.warn(f"removed stale git locks of an interrupted run: {', '.join(freed)}")

    def begin(self, work: ActiveRun) -> None:
        """Before the first step runs: preflight, then create the run on disk. Once."""
        with work.context.guard:
            if work.started:
                return
            context, chosen = work.context, work.context.settings
            start.preflight(context, paying=self.executing)
            state_folder.create(self.root)
            if self.holder is not None:
                self.holder.sign()
            context.state_dir.mkdir(parents=True, exist_ok=True)
            uptodate_stamp.remove_stamp(str(self.root), context.flow.name)
            work.entered = True
            fresh = context.run.fresh
            start.create_run(context)
            if self.executing:
                start.record_options(context)
                work.fence.announce() if fresh else None
            if self.executing and (chosen.gates or chosen.route_agents or chosen.step_timeouts):
                start.warn_about_settings(context)
            work.started = True

    def finish(self, interrupted: bool) -> None:
        """Write the final status, in agreement with the exit code; stamp a complete run."""
        for work in self.works.values():
            try:
                deferred.now()
                if interrupted and work.written:
                    fields = next_steps.event_fields("", (next_steps.resume(work.context),), work.context)
                    work.context.events.add("paused", message="interrupted", **fields)
                    work.status_file.finish("paused", "interrupted")
                elif work.written or (work.whole and self.code == 0):
                    self._finish(work)
            except (DoflowError, OSError) as error:
                self.note(1)
                if isinstance(error, OSError):
                    error = atomic_files.io_error("use", os.fsdecode(error.filename or self.root), error)
                self.warn(str(error))
            work.context.close()
        for flow, run in self.stamped.items() if not self.code else ():
            if flow in self.asked:
                at = timestamps.format_seconds()
                self.view.on_event({"event": "pipeline_complete", "at": at, "run": run, "flow": flow})
        self.view.close()
        if self.holder is not None:
            self.holder.release()
        for work in () if interrupted else self.works.values():
            if work.written and work.context.settings.notify:
                self._notify(work)

    def _notify(self, work: ActiveRun) -> None:
        """Run the notify program, after everything is written and the lock is released."""
        context = work.context
        if session_layout.parent_session(context.run.dir):
            return  # the parent run notifies
        event, message, hint = notify.news(work.ends, self.code)
        if event:
            hint = hint or ("" if event == "done" else context.resume_command)
            about = (context.run.name, context.flow.name, message, hint)
            trouble = notify.run_notify_command(context.settings.notify, event, *about, self.environ, root=self.root)
            if trouble:
                self.warn(trouble)

    def _finish(self, work: ActiveRun) -> None:
        status = {0: "completed" if work.whole else "active", 2: "paused", 3: "rate-limited"}.get(self.code, "failed")
        if work.dot_mirror is not None:
            work.dot_mirror.write(status)
        if status == "completed":
            state_folder.create(self.root)
            finish.complete_run(work.context, work.started)
            work.fence.layered.storage.remove()  # installed packages and caches of its programs
            work.status_file.finish(status)
            finish.write_stamp(work.context, self.project, self.environ)
        elif work.written:
            work.status_file.finish(status, "" if self.code else "the requested steps are done")

    def _choose(self) -> View:
        """Live view on a terminal, plain lines in a pipe, objects with --json; silent with another doit reporter."""
        out = sys.__stdout__
        if self.quiet or out is None:
            return View()
        if self.json:
            return Lines(out)
        if out.isatty() and fits(out, self.environ):
            return Live(out)
        return Plain(out)

    def warn(self, text: str) -> None:
        if self._view is not None:
            self._view.aside()
        with suppress(OSError, ValueError):  # ignore a closed terminal
            sys.__stderr__.write(text + "\n") if sys.__stderr__ else None

    def warn_once(self, text: str) -> None:
        """A warning that several flows may cause is printed once."""
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    @property
    def command(self) -> str:
        return " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:200]


class StepSlots:
    """Allows agents to run in parallel with agents and commands with commands, never both, so that changed files can be
    attributed. A step with wider write access runs alone."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._company = ""
        self._sharing = 0

    @contextmanager
    def acquire(self, company: str) -> Iterator[None]:
        """`company`: agents, commands, or '' = alone."""
        with self._change:
            self._change.wait_for(lambda: not self._sharing or (company and company == self._company))
            self._company, self._sharing = company, self._sharing + 1
        try:
            yield
        finally:
            with self._change:
                self._sharing -= 1
                self._change.notify_all()
