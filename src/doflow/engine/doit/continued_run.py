"""`doit implement` where the task list belongs to a run of another flow: the words that continue that run's implement step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from doit.cmdparse import CmdOption, CmdParseError, TaskParse

from doflow.engine.lifecycle import resolve_run
from doflow.engine.lifecycle.session import Session
from doflow.flow import markdown
from doflow.git import head_reader
from doflow.runs import catalogue, task_list_files
from doflow.runs.catalogue import Run

#: options that say which run is meant
_WHICH = ("tasks", "run", "feature_dir")


def continued_words(session: Session, words: list[str], options: Callable[[str], list[CmdOption]]) -> list[str]:
    """The command line, with `FLOW:STEP --run=NAME` for a flow whose task list is that of another flow's run."""
    about = session.project.about
    if not words or words[0] not in about or not session.project.flow(words[0]).takes_list:
        return words
    known = options(words[0])
    try:
        given, rest = TaskParse(known).parse(words[1:])
    except CmdParseError:
        return words  # doit reports it
    for run in _other_runs(session, words[0], given):
        if run.flow in about and (step := _implement_step(session, run)):
            session.warn(f"{run.dir} belongs to run {run.name} of the flow {run.flow}: continuing its step {step}")
            return [f"{run.flow}:{step}", f"--run={run.name}", *_given_words(known, given), *rest]
    return words


def _other_runs(session: Session, flow: str, given: Mapping[str, Any]) -> Iterator[Run]:
    """The runs of other flows that may be meant: of the named folder or run, else the unfinished ones of this branch."""
    if given["new"] or given["goal"] is not None:
        return
    known = [run for run in catalogue.list_runs(session.root, session.project.layout) if run.trouble is None]
    if named := given["feature_dir"] or given["tasks"]:
        path = os.path.relpath(os.path.join(session.root, named), session.root)
        folder = path if (session.root / path).is_dir() else task_list_files.run_folder(path)
        found = [run for run in known if run.dir == folder]
    elif given["run"]:
        found = [run for run in known if catalogue.is_named(run, given["run"])]
    else:
        branch = head_reader.find_head(str(session.root)).branch
        here = [run for run in reversed(known) if branch and run.branch == branch]
        found = [run for run in here if run.flow == flow or not resolve_run.is_finished(session, run)]
    if not any(run.flow == flow for run in found):
        yield from found


def _implement_step(session: Session, run: Run) -> str:
    """The implement step of a run that works on a task list in its folder; '' = none."""
    for step in resolve_run.flow_and_plan(session, run)[0].steps:
        paths = (step.phases, *step.phases_or) if step.kind == "implement" else ()
        if any((session.root / f"{run.dir}/{path}").is_file() and not markdown.is_backlog(path) for path in paths):
            return str(step.id)
    return ""


def _given_words(options: Sequence[CmdOption], given: Mapping[str, Any]) -> list[str]:
    told = [one for one in options if one.name not in _WHICH and given[one.name] != one.default]
    return [f"--{one.long}" if one.type is bool else f"--{one.long}={given[one.name]}" for one in told]
