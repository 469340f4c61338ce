"""Marking a task as done in the file of another tool, in its own format: nothing else in the file changes."""

from __future__ import annotations

import os

from doflow.flow.task_lists import parse_task_list, tick
from doflow.importers import beads, bmad, taskmaster
from doflow.util.errors import FlowError, Problem, UsageError


def mark_done(text: str, path: str, task: str, now: str) -> str:
    """The text with a task done: ticked, `done`, `closed`; a BMAD story is ready for `review`."""
    name = os.path.basename(path)
    try:
        if name.endswith(".jsonl"):
            return beads.close_issue(text, task, now)
        if name.endswith(".json"):
            tag, _, number = task.rpartition("/")
            return taskmaster.set_status(text, number, "done", tag)
        if name.endswith((".yaml", ".yml")):
            return bmad.set_status(text, task, "review")
    except FlowError as error:
        raise FlowError(tuple(problem._replace(file=path) for problem in error.problems)) from None
    except (KeyError, ValueError):
        raise UsageError(f"no task {task!r} with a status in {path}") from None
    return _ticked(text, path, task)


def _ticked(text: str, path: str, task: str) -> str:
    found = parse_task_list(text).find(task)
    if not found:
        raise UsageError(f"no task {task!r} in {path}", f"doflow tasks show {path}")
    if len(found) > 1:
        lines = ", ".join(str(one.line) for one in found)
        raise FlowError(
            (Problem(path, found[0].line, 1, f"task {task} is on lines {lines}", "name its phase: 3/T014"),)
        )
    return tick(text, found[0])
