"""Resolves a command line to a run, and the steps of that run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.engine.lifecycle.session import Session
from doflow.flow import plan
from doflow.flow.model import Flow, Param, Step
from doflow.git import head_reader, refs
from doflow.runs import catalogue, fingerprint, lockfile, run_history, session_layout, task_list_files
from doflow.runs.catalogue import ResumeCommand, Run, RunRequest
from doflow.util import state_folder
from doflow.util.errors import DoflowError, Undecided, UsageError, WorldError

if TYPE_CHECKING:
    from doflow.git.head import Head


def default_arguments(session: Session, name: str = "") -> list[str]:
    """The arguments that a command line without a flow implies: of the named run, else of the run of this branch, else of
    the only unfinished run; [] = none."""
    try:
        head = head_reader.find_head(str(session.root))
    except DoflowError:
        return []
    known = catalogue.list_runs(session.root, session.project.layout)
    if name:
        found = [run for run in known if catalogue.is_named(run, name)]
        if not found:
            names = ", ".join(run.name for run in known) or "none yet"
            raise UsageError(f"no run named {name} (runs: {names})", "doflow status lists them")
        return [found[-1].flow, f"--run={found[-1].name}"]
    known = tuple(run for run in known if not session_layout.parent_session(run.dir))
    here = [run for run in known if run.branch == head.branch][-1:]
    here = here or [run for run in known if not is_finished(session, run)]
    if here and here[-1].trouble is not None and not here[-1].flow:
        raise here[-1].trouble
    if len(here) > 1:
        raise catalogue.ambiguous_run("this project", here, lambda run: resume_command(run, head))
    return [word for run in here for word in (run.flow, f"--run={run.name}")]


def resume_command(run: Run, head: Head) -> str:
    """The command that continues a run, whatever branch is checked out."""
    words = f"doit {run.flow} --run={run.name}"
    if run.branch in ("", head.branch):
        return words
    if run.branch in refs.branch_names(head):
        return f"git switch {shlex.quote(run.branch)} && {words}"
    return f"{words} --reopen"


def find_run(session: Session, flow: str, wish: RunRequest) -> Any:
    """The requested run, or a new one; when not executing, an ambiguous request gives a new one, too."""
    meant = session.project.flow(flow)
    layout = meant.layout or session.project.layout
    head = head_reader.find_head(str(session.root))
    every = catalogue.list_runs(session.root, layout)
    for run in every if wish.run else ():
        if run.trouble is not None and catalogue.is_named(run, wish.run):
            raise run.trouble
    known = tuple(run for run in every if run.trouble is None)
    if wish.feature_dir:
        wish = replace(wish, feature_dir=catalogue.project_folder(session.root, wish.feature_dir))
        named = catalogue.run_in_folder(session.root, wish.feature_dir)
        if named is not None and named.dir not in {run.dir for run in known}:
            known = (*known, named)
    if session.executing and (session.root / layout).is_dir():
        known = run_history.with_lost_runs(session.root, meant, layout, head, known)
    done = frozenset(run.name for run in known if run.flow == flow and is_finished(session, run))
    if meant.takes_list and not wish.run:
        wish = _request_list(session, meant, wish, [run for run in known if run.flow == flow], done)
    _refuse_other_flow(known, flow, wish)
    try:
        if meant.in_sessions:
            found = choose_session(known, meant, wish, head.branch, done, lambda run: resume_command(run, head))
            wish = wish if found else request_session(known, meant, wish, session.root)
        else:
            found = catalogue.choose_run(known, flow, wish, head.branch, done, lambda run: resume_command(run, head))
    except UsageError:
        if session.executing:
            raise
        found = None
    named_by = wish.run or wish.feature_dir or (wish.goal is not None and not meant.in_sessions)
    sure = wish.new if found is None else bool(named_by or found.branch == head.branch)
    for run in every:  # one with an unreadable lock file may be the requested one
        if run.trouble is not None and run.flow in ("", flow):
            if session.executing and not sure:
                raise run.trouble
            session.warn_once(str(run.trouble))
    if found is not None:
        return catalogue.apply_request(found, wish)
    taken = [work.context.run.name for work in session.works.values()]  # of this command, not started yet
    new = catalogue.new_run(session.root, flow, wish, [*refs.branch_names(head), *taken], layout)
    if meant.in_sessions and session.executing:
        session_layout.check_session_path(new.dir, session.environ)
    return new


def _request_list(session: Session, flow: Flow, wish: RunRequest, runs: list[Run], done: frozenset[str]) -> RunRequest:
    """The request with the task list to work on. Its folder is the run's folder, unless the list is only one file of many."""
    given = wish.params.get("tasks", "")
    if wish.goal is not None:
        raise UsageError(f"{flow.name} works on a task list and takes no goal", f"doit {flow.name} --tasks=PATH")
    if not given and not wish.feature_dir:
        branch = head_reader.find_head(str(session.root)).branch
        unfinished = [run for run in runs if run.name not in done]
        if not session.executing or any(run.branch == branch for run in unfinished) or (unfinished and not wish.new):
            return wish
        if any(run.branch == branch for run in runs) and not wish.new:
            return wish  # it says that there is nothing to do
    path = task_list_files.choose_task_list(session.root, given, wish.feature_dir, flow.name)
    folder = task_list_files.run_folder(path)
    params = {**wish.params, "tasks": path}
    if folder:
        return replace(wish, feature_dir=folder, params=params)
    return replace(wish, goal=f"Implement {path}", params=params)


def _refuse_other_flow(known: Iterable[Run], flow: str, wish: RunRequest) -> None:
    """A folder has one lock file and one run."""
    folder = os.path.normpath(wish.feature_dir) if wish.feature_dir else ""
    other = next((run for run in known if folder and run.dir == folder and run.flow != flow), None)
    if other is not None:
        raise UsageError(
            f"{folder} belongs to run {other.name} of the flow {other.flow}",
            f"continue it: doit {other.flow} --run={other.name}",
        )
    name = session_layout.run_name(folder)
    twin = next((run for run in known if folder and run.name == name and run.dir != folder), None)
    if twin is not None:
        raise UsageError(
            f"a run called {name} already exists in {twin.dir}", f"rename {folder}: a run is called like its folder"
        )


def flow_and_plan(session: Session, run: Any) -> tuple[Any, Any]:
    """The flow of a run and its plan, with the steps that this run has."""
    flow = session.project.flow(run.flow)
    if not flow.varies:
        return flow, session.project.plan(run.flow)
    found = without_absent_steps(flow, run, session.environ)
    return found, plan.build_plan(found, session.project.settings())


def is_finished(session: Session, run: Any) -> bool:
    """Is every active step of the run recorded as done? (Not: is it all still fresh.)"""
    path = session.root / state_folder.RUNS / run.name / "pipeline-state.json"
    try:
        return bool(json.loads(path.read_bytes())["status"] == "completed")
    except (OSError, ValueError, KeyError):
        pass
    try:
        held = lockfile.read_lock(session.root / run.dir / lockfile.NAME)
    except WorldError:
        return False  # opening it reports why
    if held is None or run.flow not in session.project.about:
        return False
    markers = {name: record.marker for name, record in held.steps.items() if record.marker}
    flow, planned = flow_and_plan(session, run)
    kinds = {step.id: step.kind for step in flow.steps}
    order = plan.active_steps(planned, markers)
    return all(name in held.steps or kinds.get(name) == "gate" for name in order)


def requested_run(session: Session, flow: str, given: Mapping[str, Any]) -> RunRequest:
    """The requested run: from the options, completed from the environment and the goal file of the flow."""
    meant = session.project.flow(flow)
    names = [param.name for param in meant.params if param.name != "goal" and given.get(param.name)]
    wish = RunRequest(
        given.get("goal"), given.get("run") or "", given.get("feature_dir") or "", bool(given.get("new")),
        given.get("issue") or "", given.get("branch") or "", {name: str(given[name]) for name in names},
    )  # fmt: skip
    varies = meant.varies or meant.in_sessions
    return complete_request(wish, meant, session.environ, session.root) if varies else wish


def without_absent_steps(flow: Flow, run: Run, environ: Mapping[str, str]) -> Flow:
    """The flow without steps absent from this run, and without steps reachable only from them."""
    given = {param.name: param.default for param in flow.params} | dict(run.params)
    gone = {step.id for step in flow.steps if step.only and not _is_present(step, given, run, environ)}
    if not gone:
        return flow
    kept = tuple(_without_steps(step, gone) for step in flow.steps if step.id not in gone)
    pipeline = tuple(name for name in flow.pipeline if name not in gone)
    reached = _reached(kept, pipeline)
    return replace(flow, steps=tuple(step for step in kept if step.id in reached), pipeline=pipeline)


def _is_present(step: Step, given: Mapping[str, str], run: Run, environ: Mapping[str, str]) -> bool:
    only = dict(step.only)
    if "param" in only and not given.get(only["param"]):
        return False
    flag = only.get("unless", "")  # a variable that is exactly `true`; in a bug-fix session its own flag always is
    in_bugfix = flag == session_layout.FLAG and bool(session_layout.parent_session(run.dir))
    return not (flag and (environ.get(flag) == "true" or in_bugfix))


def _without_steps(step: Step, gone: set[str]) -> Step:
    routes = (replace(rule, then=tuple(name for name in rule.then if name not in gone)) for rule in step.routes)
    after = tuple(name for name in step.after or () if name not in gone)
    return replace(step, routes=tuple(routes), after=step.after if not step.after else after or None)


def _reached(steps: tuple[Step, ...], pipeline: tuple[str, ...]) -> set[str]:
    ways = {step.id: {name for rule in step.routes for name in rule.then} for step in steps}
    found: set[str] = set()
    waiting = [*pipeline]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += ways.get(name, ())
    return found


def complete_request(wish: RunRequest, flow: Flow, environ: Mapping[str, str], root: Path) -> RunRequest:
    """Fill in what the options leave open: parameters from the environment, the goal from its file."""
    found = {param.name: environ[param.env] for param in flow.params if param.env and environ.get(param.env)}
    wish = replace(wish, params={**found, **wish.params})
    goal = _goal(flow)
    settled = wish.run or (wish.feature_dir and catalogue.run_in_folder(root, wish.feature_dir))
    if wish.goal is not None or not goal.file or settled:
        return wish
    path = _file(flow, wish)
    catalogue.project_folder(root, path)
    try:
        return replace(wish, goal=(root / path).read_bytes().decode("utf-8", "surrogateescape"))
    except (FileNotFoundError, IsADirectoryError):
        return wish


def choose_session(
    known: Iterable[Run], flow: Flow, wish: RunRequest, branch: str, done: frozenset[str], going_on: ResumeCommand
) -> Run | None:
    """The requested session, None = a new one; raises if only the user can decide."""
    sessions = _main_sessions(known, flow)
    if wish.run or wish.feature_dir or not sessions or wish.new or wish.goal is None:
        return catalogue.choose_run(known, flow.name, wish, branch, done, going_on)
    last = sessions[-1]
    if last.goal_digest == catalogue.digest(wish.goal):
        return last
    if last.name in done:
        return None
    raise Undecided(
        f"{_file(flow, wish)} changed since session {last.name} started, and that session is not finished",
        f"doit {flow.name} --run={last.name}   finishes it without the change (which comes next)"
        f"   or   doit {flow.name} --new   starts a session with the change now",
    )


def request_session(known: Iterable[Run], flow: Flow, wish: RunRequest, root: Path) -> RunRequest:
    """The request for a new session: names the previous one if the requirements have changed."""
    if not (wish.goal or "").strip():
        name = _file(flow, wish)
        raise UsageError(
            f"{flow.name} needs {name}, which {'is empty' if (root / name).is_file() else 'does not exist'}",
            f"describe there what to build, then: doit {flow.name}",
        )
    sessions = [] if wish.feature_dir else _main_sessions(known, flow)
    if not sessions or sessions[-1].goal_digest == catalogue.digest(wish.goal or ""):
        return wish
    last = sessions[-1]
    if not (root / last.dir / catalogue.SNAPSHOT).is_file():
        raise UsageError(
            f"session {last.name} is on branch {last.branch}, which is not checked out, and the new session builds on it",
            f"git switch {last.branch}   or   git merge {last.branch}",
        )
    return replace(wish, params={**wish.params, "previous": last.dir})


def _main_sessions(known: Iterable[Run], flow: Flow) -> list[Run]:
    found = [run for run in known if run.flow == flow.name and not session_layout.parent_session(run.dir)]
    return sorted(found, key=lambda run: int(session_layout.sequence_number(run.dir) or 0))


def _goal(flow: Flow) -> Param:
    return next((param for param in flow.params if param.name == "goal"), Param("goal"))


def _file(flow: Flow, wish: RunRequest) -> str:
    given = {param.name: param.default for param in flow.params} | dict(wish.params)
    return os.path.normpath(fingerprint.substitute(_goal(flow).file, given).lstrip("/") or "PRD.md")
