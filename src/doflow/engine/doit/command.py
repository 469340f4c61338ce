"""doit's `run` command in a doflow project: exit codes, signals, the run lock, what is printed.

The entry point replaces doit's own command everywhere, so it changes nothing where there is no doflow project.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import wraps
from typing import Any

from doit import get_var
from doit.cmd_run import Run
from doit.cmdparse import CmdOption, CmdParseError, TaskParse
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask, UnmetDependency
from doit.reporter import ConsoleReporter

from doflow.config import project
from doflow.engine.doit import continued_run, namespace
from doflow.engine.doit.backend import Backend
from doflow.engine.doit.namespace import Bridge
from doflow.engine.lifecycle import resolve_run
from doflow.engine.lifecycle.session import Session
from doflow.runs import mutex
from doflow.util import atomic_files, errors, state_folder, stdio
from doflow.util.errors import DoflowError, Undecided
from doflow.util.process import runner

ERROR, INTERRUPTED = 1, 130
_PARTS = (".gate", ".clarify", ".route")
_MEMORY = "check the free space and its owner; deleting it is safe: doflow.lock and the event log know what is done"


class Enough(Exception):
    """--next: one step has run with all its parts, and another one would start."""


class FlowRun(Run):  # type: ignore[misc]
    """`doit FLOW`."""

    name = "run"

    loader: Any
    _bridge: Bridge | None = None

    def parse_execute(self, in_args: list[str]) -> int:
        self._given = list(in_args)
        try:
            return int(super().parse_execute(in_args))
        except CmdParseError as error:
            options = {"dodoFile": "dodo.py", "cwdPath": None, "seek_file": False}
            self.loader, self._bridge = namespace.load(self.loader, options)
            if self._bridge is None:
                raise
            stdio.open_(patient=True)
            session = self._bridge.session
            session.selected = tuple(word for word in in_args if word in session.project.about)[:1]
            return _refused(session, _short(error, self._right(session) or "doit help run lists the options"))

    def _right(self, session: Session) -> str:
        """The corrected command line, if only the order of the options is wrong."""
        try:
            flow = [*session.selected, *resolve_run.default_arguments(session), "FLOW"][0]
        except DoflowError:
            flow = "FLOW"
        known = session.project.about
        flow_options = self._options(flow if flow in known else next(iter(known), ""))
        return namespace.reorder_options(self._given, self.cmdparser.options, flow_options, flow)

    def _options(self, flow: str) -> list[CmdOption]:
        known = self._bridge.options if self._bridge is not None else {}
        return [CmdOption(option) for option in known.get(flow, ())]

    def execute(self, params: Any, args: list[str]) -> int:
        if os.environ.get("PRP_PIPELINE_RUNNING"):
            sys.dont_write_bytecode = True  # a refused nested run writes no files
        self.loader, self._bridge = namespace.load(self.loader, params)
        if self._bridge is None:
            return int(super().execute(params, args))
        session = self._bridge.session
        stdio.open_(patient=True)
        try:
            mutex.validate_nested_execution(mutex.session_path(args, str(session.root)), session.environ)
        except mutex.NestedExecutionError as error:
            return _refused(session, error.message)
        if variable := _variable():
            hint = f"use an equals sign: doit FLOW --goal='{variable}'"
            return _refused(session, f"doit parsed {variable!r} as a task variable\n  hint: {hint}")
        session.executing = Backend.running = True
        mutex.enter(os.environ)
        config = self.loader.load_doit_config()
        params.update_defaults(config)
        session.quiet = params["reporter"] not in ("console", ConsoleReporter)
        session.always = bool(params["always"])
        if config["doflow_lost"]:
            session.warn(config["doflow_lost"])
        try:
            words = args or list(config["default_tasks"]) or resolve_run.default_arguments(session)
            if not words:
                flows = ", ".join(session.project.about) or "none: doflow init"
                message = f'no run to continue. Start one: doit FLOW --goal="…"   (flows: {flows})'
                if self.bin_name == "doflow":
                    return _refused(session, f"{message}\n  hint: doflow run --flow FLOW --goal '…'")
                session.warn(message)  # doit may have default tasks of its own
            words = continued_run.continued_words(session, words, self._options)
            session.asked = tuple(words)
            session.selected = tuple(word.split(":")[0] for word in words if not word.startswith("-"))
            return int(super().execute(params, self._take_options(words)))
        except KeyboardInterrupt:
            return INTERRUPTED
        except CmdParseError as error:
            return _refused(session, self._misread(error, session))
        except (InvalidDodoFile, InvalidTask, InvalidCommand) as error:
            return _refused(session, self._hinted(error, session))
        except Exception as error:
            return _crashed(session, error)
        finally:
            mutex.leave(os.environ)
            if session.holder is not None:
                session.holder.release()

    def _misread(self, error: CmdParseError, session: Session) -> str:
        broken = [session.project.broken[name] for name in session.selected if name in session.project.broken]
        flow = session.selected[0] if session.selected else "run"
        return "\n".join(broken) or _short(error, self._right(session) or f"doit help {flow} lists the options")

    def _hinted(self, error: Exception, session: Session) -> str:
        if isinstance(error, InvalidCommand):
            error.bin_name = self.bin_name
            if wanted := getattr(error, "not_found", None):
                broken, flows = session.project.broken, ", ".join(session.project.about)
                unknown = f"no flow or step named {wanted} (flows: {flows})\n  hint: doit list --all"
                return broken.get(wanted) or "\n".join(broken.values()) or unknown
        return str(error)

    def _take_options(self, words: list[str]) -> list[str]:
        """Takes the options after FLOW:STEP, which doit accepts only after FLOW; returns the other arguments."""
        kept: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            kept.append(word)
            flow, colon, _ = word.partition(":")
            options = self._options(flow) if colon else []
            if options and rest and rest[0].startswith("-"):
                given, rest = TaskParse(options).parse(rest)
                self.loader.task_opts = {**(self.loader.task_opts or {}), flow: given}
        return kept

    @wraps(Run._execute)  # doit passes the options that are named in the signature
    def _execute(self, outfile: Any, **given: Any) -> int:
        if self._bridge is None:
            return int(super()._execute(outfile, **given))
        session = self._bridge.session
        if getattr(outfile, "name", "") == "<stdout>":  # the stream that doit saw at import
            outfile = sys.stdout
        reporter = given["reporter"]
        base = self.reporters[reporter] if isinstance(reporter, str) else reporter
        once = any(work.context.options.next or work.context.options.task for work in session.works.values())
        alone = any(work.context.options.task for work in session.works.values())
        if once or len(session.works) > 1:  # two flows use two branches: run them one after the other
            given["num_process"] = 0
        done: set[str] = set()
        given |= {"par_type": "thread", "reporter": _reporter(base, session, done if once else None)}
        stop = session.on_signal
        old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        interrupted = False
        try:
            result = int(super()._execute(outfile, **given))
        except Enough:
            result = 0
        except KeyboardInterrupt:
            result, interrupted = 0, True
        finally:
            for number in old:
                signal.signal(number, signal.SIG_IGN)
        self.control = self.task_list = None
        try:
            return _end(session, self.sel_tasks or (), result, interrupted, enough=once and (bool(done) or alone))
        finally:
            if session.code != INTERRUPTED:  # otherwise a second ^C would spoil an orderly end
                for number, handler in old.items():
                    signal.signal(number, handler)


def _end(session: Session, words: Any, result: int, interrupted: bool, enough: bool) -> int:
    """`enough`: --next has done its step; whether the run is complete is for the next command to find."""
    interrupted = interrupted or (runner.stopping() and bool(result or session.code))
    runner.close()
    if result and not session.code:
        session.note(ERROR)
    if interrupted:
        session.note(INTERRUPTED)
    interrupted = session.code == INTERRUPTED
    for flow, work in session.works.items():
        if session.code == 0 and (enough or flow in words) and not interrupted:
            from doflow.engine.doit import actions  # loaded with the tasks

            actions.ask_at_end(session, work, only_again=enough)
        work.whole = flow in words and session.code == 0 and not enough
    session.finish(interrupted)
    works = session.works
    again = next(iter(works.values())).context.resume_command if len(works) == 1 else f"doit {' '.join(works)}"
    session.works.clear()  # free the memory of a long run
    if (session.root / state_folder.NAME).is_dir():
        project.write_cache(session.project, session.environ)
    if interrupted:
        session.warn(f"interrupted; finished steps are kept\ncontinue with:\n  {again}")
    return session.code


def _reporter(base: Any, session: Session, done: set[str] | None) -> Any:
    """Extend one of doit's reporters to also inform the session and its view.

    `done`: with --next, the step that has run; before a task of another one, stop."""

    class Reporter(base):  # type: ignore[misc]
        def add_success(self, task: Any) -> None:
            super().add_success(task)
            flow = task.name.partition(":")[0]
            if done is not None and flow in session.works and task.actions and not task.name.endswith(_PARTS):
                done.add(_step_task(task.name))

        def add_failure(self, task: Any, fail: Any) -> None:
            outcome = getattr(fail, "outcome", None)
            own_task = outcome is None and not isinstance(fail, UnmetDependency)
            if own_task:
                session.note(ERROR)
                session.view.aside(task.name)
            if own_task or base is not ConsoleReporter:
                super().add_failure(task, fail)
            elif outcome is not None:
                session.view.stopped(task.name, outcome)

        def execute_task(self, task: Any) -> None:
            if done and task.actions and _step_task(task.name) not in done:
                raise Enough
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
                # private, for want of a public way to ask: doit's JSON reporter breaks on a task that was broken off
                if result._started_on is not None and result._finished_on is None:
                    result.set_result("fail", "interrupted")
            super().complete_run()

    return Reporter


def _step_task(name: str) -> str:
    """The task of the step that a task belongs to: a phase, an item, a gate, a route."""
    flow, step = f"{name}:".split(":")[:2]
    for part in _PARTS:
        step = step.removesuffix(part)
    return f"{flow}:{step}"


def _variable() -> str:
    """An argument that doit took as a task variable: any word with an equals sign and without a leading dash."""
    words = (word.partition("=") for word in sys.argv[1:] if not word.startswith("-"))
    return next((f"{name}={value}" for name, equals, value in words if equals and get_var(name) == value), "")


def _short(error: Exception, hint: str) -> str:
    """doit's error message without its list of all options."""
    words = str(error).split(" (parsing options", 1)[0].removeprefix("Error parsing ")
    return f"{words}\n  hint: {hint}"


def _refused(session: Session, words: str) -> int:
    sys.stderr.write(errors.error_json(words) if session.json else f"ERROR: {words}\n")
    return ERROR


def _crashed(session: Session, error: Exception) -> int:
    if isinstance(error, DoflowError):
        code = _refused(session, str(error))
        return 2 if isinstance(error, Undecided) else code
    if isinstance(error, OSError) and error.filename:
        return _refused(session, str(atomic_files.io_error("use", os.fsdecode(error.filename), error)))
    if type(error).__module__ == "sqlite3":
        return _refused(session, f"cannot use doit's database .doflow/state.db: {error}\n  hint: {_MEMORY}")
    sys.stderr.write(traceback.format_exc())
    return ERROR
