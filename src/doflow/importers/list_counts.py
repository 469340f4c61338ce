"""How much of a task list is done, and what to type for the lists that are not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from doflow.flow.task_lists import Phase, Task, parse_task_list
from doflow.importers.model import FoundList
from doflow.importers.project_tree import ProjectTree
from doflow.util.errors import FlowError

MOST_LISTS = 300


def count_lists(tree: ProjectTree, paths: Sequence[str]) -> tuple[FoundList, ...]:
    """The lists among these files. A file without a box is not one."""
    found = []
    for path in paths[:MOST_LISTS]:
        try:
            tasks = parse_task_list(tree.read_bytes_as_text(path))
        except FlowError:
            continue
        needed = [task for phase in tasks.phases for task in _needed(phase)]
        done = sum(task.done for task in needed)
        if tasks.phases:
            found.append(FoundList(path, done, len(needed) - done, len(tasks.phases)))
    return tuple(found)


def _needed(phase: Phase) -> list[Task]:
    """The tasks that decide whether a phase is done: its heading only if there is nothing else."""
    needed = [task for task in phase.tasks if not task.optional]
    return [task for task in needed if not task.head] or needed


def to_type(lists: Sequence[FoundList]) -> tuple[str, ...]:
    """The command for the first unfinished list."""
    return tuple(f"doit implement --tasks={shlex.quote(one.path)}" for one in lists if one.open)[:1]
