"""doit's `run` command in a doflow project: exit codes, signals, the run lock, what is printed.

The entry point replaces doit's own command everywhere, so it changes nothing where there is no doflow project.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from doit.cmd_run import Run
from doit.cmdparse import CmdOption, CmdParseError, TaskParse
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask
from doit.reporter import ConsoleReporter

from doflow.config import project
from doflow.engine.doit import namespace as creators
from doflow.engine.doit.backend import Backend
from doflow.engine.lifecycle.session import Session
from doflow.util import bundle, stdio as outlet

ERROR, INTERRUPTED = 1, 130
_PARTS = (".gate", ".clarify", ".route")
_MEMORY = "check the free space and its owner; it may also be deleted: the lock and the ledger know what is done"


class Enough(Exception):
    """--next: one step is done, that is what was asked."""


class FlowRun(Run):  # type: ignore[misc]
    """`doit FLOW`."""

    name = "run"

    def parse_execute(self, in_args: list[str]) -> int:
        self._given = list(in_args)
        try:
            return int(super().parse_execute(in_args))
        except CmdParseError as error:
            self.loader.setup({"dodoFile": "dodo.py", "cwdPath": None, "seek_file": False})
            session = self._session()
            if session is None:
                raise
            outlet.open_(patient=True)
            session.selected = tuple(word for word in in_args if word in session.project.about)[:1]
            return _refused(session, _short(error, self._right(session) or "doit help run lists the options"))

    def _right(self, session: Session) -> str:
        """The words of this command line as doit can read them, if they are only in the wrong order."""
        from doflow.engine.doit.arguments import reword
        from doflow.engine.lifecycle import resolve_run as meant
        from doflow.util.errors import DoflowError

        try:
            flow = [*session.selected, *meant.default(session), "FLOW"][0]
        except DoflowError:
            flow = "FLOW"
        known = session.project.about
        creator = self.loader.namespace.get(f"task_{flow if flow in known else next(iter(known), '')}")
        theirs = [CmdOption(option) for option in creator._task_creator_params] if creator else []
        return reword(self._given, self.cmdparser.options, theirs, flow)

    def execute(self, params: Any, args: list[str]) -> int:
        if os.environ.get("PRP_PIPELINE_RUNNING"):
            sys.dont_write_bytecode = True  # this may be a refusal, which leaves nothing behind
        gc.disable()  # until the first step has begun (`session.begin`): what is made up to there stays
        self.loader.setup(params)
        session = self._session()
        self.loader.setup = lambda _: None
        if session is None:
            gc.enable()
            return int(super().execute(params, args))
        return self._ours(session, params, args)

    def _session(self) -> Session | None:
        found = creators.config(getattr(self.loader, "namespace", None) or {}).get("doflow")
        return found if isinstance(found, Session) else None

    def _ours(self, session: Session, params: Any, args: list[str]) -> int:
        from doflow.guard import nested_runs as nested

        outlet.open_(patient=True)
        try:
            nested.validate_nested_execution(nested.session_path(args, str(session.root)), session.environ)
        except nested.NestedExecutionError as error:
            return _refused(session, error.message)
        taken = _variables()
        if taken:
            hint = f"write it with its equals sign: doit FLOW --goal='{taken}'"
            return _refused(session, f"doit takes {taken!r} for a variable of its own, not for a value\n  hint: {hint}")
        session.executing = Backend.running = True
        nested.enter(os.environ)
        config = creators.config(self.loader.namespace)
        params.update_defaults(config)
        session.quiet = params["reporter"] not in ("console", ConsoleReporter)
        session.always = bool(params["always"])
        if config["doflow_lost"]:
            session.warn(config["doflow_lost"])
        try:
            words = self._meant(session, args or list(config["default_tasks"]))
            if not words and self.bin_name == "doflow":
                return _refused(session, f"{_nothing(session)}\n  hint: doflow run --flow FLOW --goal '…'")
            return int(super().execute(params, self._taken(words)))
        except KeyboardInterrupt:
            return INTERRUPTED
        except CmdParseError as error:
            return _refused(session, self._misread(error, session))
        except (InvalidDodoFile, InvalidTask, InvalidCommand) as error:
            return _refused(session, _hinted(error, self.bin_name, session))
        except Exception as error:
            return _crashed(session, error)
        finally:
            nested.leave(os.environ)
            if session.holder is not None:
                session.holder.release()

    def _meant(self, session: Session, words: list[str]) -> list[str]:
        """The words that name what to run; plain `doit` goes on with a run."""
        if not words:
            from doflow.engine.lifecycle import resolve_run as meant

            words = meant.default(session)
        if not words:  # doit has default tasks of its own
            session.warn(_nothing(session)) if self.bin_name != "doflow" else None
        session.asked = tuple(words)
        session.selected = tuple(word.split(":")[0] for word in words if not word.startswith("-"))
        return words

    def _misread(self, error: CmdParseError, session: Session) -> str:
        broken = [session.project.broken[name] for name in session.selected if name in session.project.broken]
        if broken:
            return "\n".join(broken)
        flow = session.selected[0] if session.selected else "run"
        return _short(error, self._right(session) or f"doit help {flow} lists the options")

    def _taken(self, words: list[str]) -> list[str]:
        """The words without options after FLOW:STEP: they are the flow's, which doit knows only after FLOW."""
        kept: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            kept.append(word)
            flow, colon, _ = word.partition(":")
            creator = self.loader.namespace.get(f"task_{flow}") if colon else None
            if creator is not None and rest and rest[0].startswith("-"):
                options = [CmdOption(option) for option in creator._task_creator_params]
                given, rest = TaskParse(options).parse(rest)
                self.loader.task_opts = {**(self.loader.task_opts or {}), flow: given}
        return kept

    def _execute(self, *args: Any, **given: Any) -> int:
        session = self._session()
        if session is None:
            return int(super()._execute(*args, **given))
        if getattr(given["outfile"], "name", "") == "<stdout>":  # as it was when doit was imported
            given["outfile"] = sys.stdout
        base = given["reporter"]
        base = self.reporters[base] if isinstance(base, str) else base
        given["reporter"] = _noting(base, session)
        once = any(work.world.options.next for work in session.works.values())
        alone = once or len(session.works) > 1  # two flows are two branches: one after the other
        given["num_process"] = 0 if alone else given["num_process"]
        given["par_type"] = "thread"
        return self._run(session, args, given)

    _execute.__signature__ = inspect.signature(Run._execute)  # type: ignore[attr-defined]

    def _run(self, session: Session, args: Any, given: Any) -> int:
        stop = _stopper(session)
        old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        interrupted = enough = False
        try:
            result = int(super()._execute(*args, **given))
        except Enough:
            result, enough = 0, True
        except KeyboardInterrupt:
            result, interrupted = 0, True
        finally:
            for number in old:
                signal.signal(number, signal.SIG_IGN)
        self.control = self.task_list = None
        try:
            return _end(session, self.sel_tasks or (), result, interrupted, enough)
        finally:
            if session.code != INTERRUPTED:  # else a second ^C would change how an orderly end looks
                for number, handler in old.items():
                    signal.signal(number, handler)


def _end(session: Session, words: Any, result: int, interrupted: bool, enough: bool) -> int:
    if "doflow.util.process.runner" in sys.modules:
        from doflow.util.process import runner as process

        interrupted = interrupted or (process.stopping() and bool(result or session.code))
        process.close()
    if result and not session.code:
        session.note(ERROR)
    if interrupted or session.code == INTERRUPTED:
        interrupted = True
        session.code = INTERRUPTED
    for flow, work in session.works.items():
        work.whole = flow in words and session.code == 0 and not enough
    session.finish(interrupted)
    works = session.works
    again = next(iter(works.values())).world.again if len(works) == 1 else f"doit {' '.join(works)}"
    session.works.clear()  # a long run holds much; what follows need not come on top of it
    if (session.root / project.STATE).is_dir():
        project.keep(session.project, session.environ)
        bundle.keep()
    if interrupted:
        session.warn(f"interrupted; what is done stays done. Go on with: {again}")
    return session.code


def _stopper(session: Session) -> Callable[[int, FrameType | None], None]:
    """What a signal does: a step under way is told to stop and puts back what it left; anything else is broken off.

    A second signal waits for nobody.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if "doflow.util.process.runner" in sys.modules:
            from doflow.util.process import runner as process

            process.stop_all(0.0 if process.stopping() else 5.0)
        if not session.busy:
            raise KeyboardInterrupt

    return stop


def _noting(base: Any, session: Session) -> Any:
    """Any reporter of doit's, which also hears what ours needs to know."""

    class Noting(base):  # type: ignore[misc]
        def add_success(self, task: Any) -> None:
            super().add_success(task)
            if (
                task.actions
                and any(work.world.options.next for work in session.works.values())
                and not task.name.endswith(_PARTS)
            ):
                raise Enough

        def add_failure(self, task: Any, fail: Any) -> None:
            outcome = getattr(fail, "outcome", None)
            if outcome is None and not isinstance(fail, _unmet()):
                session.note(ERROR)
            if base is not ConsoleReporter:
                super().add_failure(task, fail)
            elif outcome is None and not isinstance(fail, _unmet()):
                session.view.aside(task.name)
                super().add_failure(task, fail)
            elif outcome is not None:
                session.view.stopped(task.name, outcome)

        def execute_task(self, task: Any) -> None:
            if base is not ConsoleReporter:
                super().execute_task(task)

        def skip_uptodate(self, task: Any) -> None:
            if base is not ConsoleReporter:
                super().skip_uptodate(task)
            else:
                session.view.skipped(task.name)

        def runtime_error(self, message: str) -> None:
            session.note(ERROR)
            super().runtime_error(message)

        def complete_run(self) -> None:
            if base is ConsoleReporter:
                self.failures: list[Any] = []
            for result in getattr(self, "t_results", {}).values():
                if result._started_on is not None and result._finished_on is None:
                    result.set_result("fail", "interrupted")  # else doit's JSON reporter breaks on it
            super().complete_run()

    return Noting


def _variables() -> str:
    """A word that doit has swallowed: anything with an equals sign and no dash in front."""
    from doit import doit_cmd

    found = getattr(doit_cmd, "_CMDLINE_VARS", None) or {}
    return next((f"{name}={value}" for name, value in found.items()), "")


def _unmet() -> Any:
    from doit.exceptions import UnmetDependency

    return UnmetDependency


def _nothing(session: Session) -> str:
    flows = ", ".join(session.project.about) or "none: doflow init"
    return f'no run to go on with. Start one: doit FLOW --goal="…"   (flows: {flows})'


def _short(error: Exception, hint: str) -> str:
    """doit's complaint without its list of every option."""
    words = str(error).split(" (parsing options", 1)[0].removeprefix("Error parsing ")
    return f"{words}\n  hint: {hint}"


def _hinted(error: Exception, name: str, session: Session) -> str:
    if isinstance(error, InvalidCommand):
        error.bin_name = name
        wanted = getattr(error, "not_found", None)
        if wanted:
            known = ", ".join(session.project.about)
            return (
                session.project.broken.get(wanted)
                or "\n".join(session.project.broken.values())
                or f"there is no flow or step called {wanted} (flows: {known})\n  hint: doit list --all"
            )
    return str(error)


def _refused(session: Session, words: str) -> int:
    from doflow.util import json_error as early

    sys.stderr.write(early.line(words) if session.json else f"ERROR: {words}\n")
    return ERROR


def _crashed(session: Session, error: Exception) -> int:
    from doflow.util.errors import DoflowError, Undecided

    if isinstance(error, DoflowError):
        code = _refused(session, str(error))
        return 2 if isinstance(error, Undecided) else code
    if isinstance(error, OSError) and error.filename:
        from doflow.util import atomic_files as files

        return _refused(session, str(files.broke("use", os.fsdecode(error.filename), error)))
    if type(error).__module__ == "sqlite3":
        return _refused(session, f"doit's memory .doflow/state.db cannot be used: {error}\n  hint: {_MEMORY}")
    import traceback

    sys.stderr.write(traceback.format_exc())
    return ERROR
