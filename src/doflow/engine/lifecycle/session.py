"""One process at work: which flows were asked for, their worlds, what came of it. Built by `tasks`, ended by `glue`."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.config import project, uptodate_stamp as hot
from doflow.engine.lifecycle.concurrency import Turn
from doflow.util import deferred as idle

if TYPE_CHECKING:
    from doflow.engine.lifecycle.status_file import Projection
    from doflow.engine.view.plain import View
    from doflow.flow.model import Outcome
    from doflow.guard.fence.fence import Fence
    from doflow.runs.context import World
    from doflow.runs.mutex import Holder

CODES = {"done": 0, "paused": 2, "rate_limited": 3, "cancelled": 130}
_RANK = {0: 0, 2: 1, 3: 2, 1: 3, 130: 4}


class _Fence:
    """The fence, made when something is asked of it: a step that nobody watches never does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: Fence | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            from doflow.guard.fence.fence import Fence

            self._made = Fence(self._world)
        return getattr(self._made, name)


class Work:
    """A flow that this process works on."""

    def __init__(self, world: World, projection: Projection) -> None:
        self.world = world
        self.fence: Fence = _Fence(world)  # type: ignore[assignment]
        self.projection = projection
        self.turn = Turn()
        self.entered = self.begun = False
        self.whole = False
        self.back: tuple[str, ...] = ()  # what a killed process had left and this one has put back
        self.echo: Any = None  # writes the statuses of a DOT pipeline back into its file
        self.ends: dict[str, Mapping[str, Any]] = {}

    @property
    def written(self) -> bool:
        """Whether the run is on the disk, begun as a whole or broken off on the way: then its end is to be there, too."""
        return self.entered and (not self.world.run.fresh or "run_started" in self.ends)


class Session:
    """Lives as long as the process. `executing` is set by the run command; without it nothing is written."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.environ = environ
        self.words: Sequence[str] = ()
        self.executing = False
        self.asked: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.code = 0
        self.json = False
        self.quiet = False
        self.always = False
        self.limited: Outcome | None = None
        self.busy: set[object] = set()  # steps under way: they end by themselves when they are told to stop
        self.works: dict[str, Work] = {}
        self.stamped: dict[str, str] = {}
        self.holder: Holder | None = None
        self._project: project.Project | None = None
        self._view: View | None = None
        self._told: set[str] = set()
        self.made: dict[str, str] = {}  # looking only: which flow was the first to make a file

    @property
    def project(self) -> project.Project:
        if self._project is None:
            self._project = project.open_(self.root, self.environ, self.words)
        return self._project

    @property
    def view(self) -> View:
        if self._view is None:
            self._view = self._choose()
        return self._view

    def note(self, code: int) -> None:
        """Of several outcomes the worst is reported: interrupted, error, rate limit, pause."""
        if _RANK.get(code, 3) > _RANK.get(self.code, 3):
            self.code = code

    def hears(self, entry: Mapping[str, Any]) -> None:
        for work in self.works.values():
            if work.world.run.name == entry["run"]:
                work.projection.hear(entry)
                if work.echo is not None:
                    work.echo.hear(entry)
                work.ends[entry["event"]] = entry
        self.view.hear(entry)

    def add(self, work: Work) -> None:
        self.works[work.world.flow.name] = work
        if self.executing:
            self.view.about(work.world.flow.name, work.world.run.name, work.world.again)

    def found(self, flow: str, run: str) -> None:
        """A run that a stamp knows as complete: nothing of it is opened."""
        self.stamped[flow] = run
        self.view.about(flow, run)

    def lock(self) -> None:
        """Taken when the first flow turns out to have something to do, or to look at."""
        if self.holder is None:
            from doflow.runs.mutex import Holder

            holder = Holder(self.root, self.command)
            holder.take()
            self.holder = holder
            if holder.left:
                self._succeed(holder)

    def _succeed(self, holder: Holder) -> None:
        """The run before was killed: what it had started ends, what its git had locked at that moment is free again."""
        from doflow.git import repository as look, stale_locks as stale
        from doflow.util import atomic_files as files
        from doflow.util.process import orphans as marked, runner as process

        for place, _, _ in os.walk(self.root / project.STATE / "store"):
            files.sweep(place)

        if holder.dead:
            alive = marked.kill(
                f"{process.MARK}={holder.dead}.*".encode(), os.fsencode(f"DOFLOW_RUN_DIR={self.root}/*")
            )
            if alive:
                self.warn(f"a killed run left programs at work, which are killed: {', '.join(map(str, sorted(alive)))}")
        freed = stale.free(look.find(str(self.root)), holder.left)
        if freed:
            self.warn(f"the git of a killed run left a lock, which is removed: {', '.join(freed)}")

    def begin(self, work: Work) -> None:
        """Before the first step that runs: preflight, then everything that makes the run real. Once."""
        with work.world.guard:
            if work.begun:
                return
            from doflow.engine.lifecycle import start as intake

            intake.preflight(work.world, paying=self.executing)
            project.prepare(self.root)
            if self.holder is not None:
                self.holder.sign()
            work.world.state_dir.mkdir(parents=True, exist_ok=True)
            hot.remove(str(self.root), work.world.flow.name)
            work.entered = True
            intake.begin(work.world)
            if self.executing:
                intake.wished(work.world)
            chosen = work.world.settings
            if self.executing and (chosen.gates or chosen.route_agents or chosen.step_timeouts):
                from doflow.engine.lifecycle import settings_lint as strangers

                strangers.warn(work.world)
            work.begun = True
            gc.freeze()  # it stays to the end: the collector need not walk through it
            gc.enable()

    def finish(self, interrupted: bool) -> None:
        """Status on disk and exit code agree; a complete run is stamped."""
        from doflow.util import atomic_files as files
        from doflow.util.errors import DoflowError

        for work in self.works.values():
            try:
                self._last(work, interrupted)
            except DoflowError as error:
                self.note(1)
                self.warn(str(error))
            except OSError as error:
                self.note(1)
                self.warn(str(files.broke("use", os.fsdecode(error.filename or self.root), error)))
            work.world.close()
        for flow, run in self.stamped.items() if not self.code else ():
            if flow in self.asked:
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                self.view.hear({"event": "pipeline_complete", "at": at, "run": run, "flow": flow})
        self.view.close()
        if self.holder is not None:
            self.holder.release()
        for work in () if interrupted else self.works.values():
            if work.written and work.world.settings.notify:
                self._notify(work)

    def _last(self, work: Work, interrupted: bool) -> None:
        idle.now()
        if interrupted and work.written:
            work.world.ledger.add("paused", message="interrupted", hint=work.world.again)
            work.projection.finish("paused", "interrupted")
        elif work.written or (work.whole and self.code == 0):
            self._finish(work)

    def _notify(self, work: Work) -> None:
        """After everything is written and the lock is free: the program may look at the run, and answer."""
        from doflow.runs import session_layout as sessionpaths
        from doflow.util.process import notify

        world = work.world
        if sessionpaths.parent(world.run.dir):
            return  # the run that it belongs to tells
        event, message, hint = notify.news(work.ends, self.code)
        if event:
            hint = hint or ("" if event == "done" else world.again)
            about = (world.run.name, world.flow.name, message, hint)
            trouble = notify.tell(world.settings.notify, event, *about, self.environ, root=self.root)
            if trouble:
                self.warn(trouble)

    def _finish(self, work: Work) -> None:
        from doflow.engine.lifecycle import finish as closing

        status = {0: "completed" if work.whole else "active", 2: "paused", 3: "rate-limited"}.get(self.code, "failed")
        if work.echo is not None:
            work.echo.write(status)
        if status == "completed":
            project.prepare(self.root)
            closing.complete(work.world, work.begun)
            work.projection.finish(status)
            closing.stamp(work.world, self.project, self.environ)
        elif work.written:
            work.projection.finish(status, "" if self.code else "done as far as it was asked for")

    def _choose(self) -> View:
        """A terminal gets the live view, a pipe plain lines, --json objects; a foreign reporter has the word alone."""
        from doflow.engine.view.plain import Lines, Plain, View

        out = sys.__stdout__
        if self.quiet or out is None:
            return View()
        if self.json:
            return Lines(out)
        if out.isatty():
            from doflow.engine.view.live import Live, fits

            if fits(out, self.environ):
                return Live(out)
        return Plain(out)

    def warn(self, text: str) -> None:
        if self._view is not None:
            self._view.aside()
        with suppress(OSError, ValueError):  # a terminal that is gone hears nothing, and changes nothing
            sys.__stderr__.write(text + "\n") if sys.__stderr__ else None

    def tell(self, text: str) -> None:
        """A warning that several flows have reason for, once."""
        if text not in self._told:
            self._told.add(text)
            self.warn(text)

    @property
    def command(self) -> str:
        return " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:200]
