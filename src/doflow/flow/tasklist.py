"""Parser of task lists: phases, tasks with their files and dependencies, and all problems. Pure.

The grammar is in docs/tasks.md. Lines in code fences are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from doflow.flow import markdown
from doflow.util.errors import Problem

_BOX = re.compile(r"^([ \t]*)[-*+][ \t]+\[([ xX])\][ \t]*(.*?)[ \t]*$")
_TASK = re.compile(r"^\[([A-Z]\d+)\](?:[ \t]+\[(P)(?::([\w-]+))?\])?[ \t]+(\S.*)$")
_MARK = re.compile(r"^\[[Pp](?:[:\s][^\]]*)?\]")
_NO_BOX = re.compile(r"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)(?:\[[^\]]?\][ \t]*)?\[?T\d{2,}\b")
_EXTRA = re.compile(r"^([ \t]*)(?:[-*+][ \t]+)?(files|depends):[ \t]*(.*?)[ \t]*$", re.IGNORECASE)
_LIKE_A_PHASE = re.compile(r"^phase\s*\d+\b", re.IGNORECASE)
_PHASE = re.compile(r"^Phase \d+:")
_FORM = "`- [ ] [T001] text`"


@dataclass(frozen=True, slots=True)
class Task:
    """One checkbox. `group`: tasks of one group may run in parallel ('' = none)."""

    id: str
    text: str
    line: int
    done: bool = False
    group: str = ""
    files: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


class Phase(NamedTuple):
    """One `## Phase N: title` with its tasks; a list without phases is one, numbered `all`."""

    number: str
    title: str
    line: int
    tasks: tuple[Task, ...]


class TaskList(NamedTuple):
    """A parsed task list; it is valid if there are no `problems`. `warnings` do not fail the check."""

    phases: tuple[Phase, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse_task_list(text: str) -> TaskList:
    cut = markdown.phases(text)
    bounds = [(phase, phase.line, phase.line + len(phase.text.splitlines()) - 1) for phase in cut]
    whole = markdown.Phase("all", "", text, 1)
    lines = list(markdown.prose(text))
    found: list[Problem] = list(_headings(text))
    phases = []
    for phase, first, last in bounds or [(whole, 1, len(text.splitlines()))]:
        inner = [(number + 1, line) for number, line in lines if first <= number + 1 <= last]
        phases.append(Phase(phase.number, phase.title, phase.line, _tasks(inner, found)))
    if cut:
        inside = {number for _, first, last in bounds for number in range(first, last + 1)}
        found += [
            _problem(number + 1, "task outside a phase: move it below a `## Phase N: title`")
            for number, line in lines
            if number + 1 not in inside and _BOX.match(line)
        ]
    found += [*_phases(phases), *_ids(phases), *_depends(phases), *_clashes(phases)]
    return TaskList(tuple(phases), _ordered(found), _ordered(_warnings(phases)))


def _headings(text: str) -> Iterator[Problem]:
    """Headings that look like phases but are not."""
    for heading in markdown.headings(text):
        if _LIKE_A_PHASE.match(heading.title) and not (heading.level == 2 and _PHASE.match(heading.title)):
            shown = f"{'#' * heading.level} {heading.title}"
            yield _problem(heading.line + 1, f"a phase is `## Phase N: title`, this is `{shown}`")


def _tasks(lines: Sequence[tuple[int, str]], found: list[Problem]) -> tuple[Task, ...]:
    """The tasks on some lines; `found` collects the problems."""
    tasks: list[Task] = []
    run = 0  # neighbouring `[P]` without a name are one group
    for number, line in lines:
        box, extra = _BOX.match(line), _EXTRA.match(line)
        if extra and not box:
            words = _extra(extra, tasks)
        elif box:
            named = _TASK.match(box[3])
            run += not (named and named[2])
            words = "" if named else f"a task is {_FORM}, this is `{line.strip()}`"
            if named and _MARK.match(named[4]):
                words = f"the mark for parallel tasks is `[P]` or `[P:group]`, this is `{line.strip()}`"
            if named:
                group = named[3] or f"P{run}" if named[2] else ""
                tasks.append(Task(named[1], named[4], number, box[2] != " ", group))
        else:
            words = f"a task is {_FORM}, this is `{line.strip()}`" if _NO_BOX.match(line) else ""
        if words:
            found.append(_problem(number, words))
    return tuple(tasks)


def _extra(found: re.Match[str], tasks: list[Task]) -> str:
    """Add a `files:` or `depends:` line to the task above it; returns the problem, or ''."""
    word = found[2].lower()
    if not found[1]:
        return f"`{word}:` must be indented below its task" if tasks else ""
    if not tasks:
        return f"`{word}:` has no task above it"
    names = tuple(name for part in found[3].split(",") if (name := part.strip().strip("`")))
    if not names:
        return f"`{word}:` is empty"
    task = tasks[-1]
    if word == "files":
        tasks[-1] = replace(task, files=(*task.files, *names))
    elif [name.lower() for name in names] != ["none"]:
        tasks[-1] = replace(task, depends=(*task.depends, *(name.strip("[]") for name in names)))
    return ""


def _phases(phases: Sequence[Phase]) -> Iterator[Problem]:
    before = -1
    for phase in phases:
        if phase.number != "all":
            number = int(phase.number)
            if number <= before:
                words = "is a duplicate" if number == before else f"comes after Phase {before}"
                yield _problem(phase.line, f"Phase {phase.number} {words}: number the phases 1, 2, 3")
            before = max(before, number)
            if not phase.title:
                yield _problem(phase.line, f"Phase {phase.number} has no title: `## Phase {phase.number}: title`")
        if not phase.tasks:
            name = "the list" if phase.number == "all" else f"Phase {phase.number}"
            yield _problem(phase.line, f"{name} has no task {_FORM}")


def _ids(phases: Sequence[Phase]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for task in _all(phases):
        if task.id in seen:
            yield _problem(task.line, f"duplicate task ID {task.id} (first defined on line {seen[task.id]})")
        seen.setdefault(task.id, task.line)


def _depends(phases: Sequence[Phase]) -> Iterator[Problem]:
    place = {task.id: number for number, phase in enumerate(phases) for task in phase.tasks}
    for number, phase in enumerate(phases):
        for task in phase.tasks:
            for name in task.depends:
                if name not in place:
                    yield _problem(task.line, f"{task.id} depends on {name}, which is not in this list")
                elif place[name] > number:
                    late = phases[place[name]].number
                    yield _problem(task.line, f"{task.id} depends on {name}, which comes later, in Phase {late}")
    graph = {task.id: tuple(name for name in task.depends if name in place) for task in _all(phases)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = tuple(reversed(error.args[1]))  # its first task is at both ends
        line = next(task.line for task in _all(phases) if task.id == cycle[0])
        yield _problem(line, f"dependency cycle: {' -> '.join(cycle)}")


def _clashes(phases: Sequence[Phase]) -> Iterator[Problem]:
    """The same file or glob in two tasks that may run in parallel."""
    for phase in phases:
        seen: dict[tuple[str, str], str] = {}
        for task in phase.tasks:
            for name in dict.fromkeys(task.files) if task.group else ():
                other = seen.setdefault((task.group, name), task.id)
                if other != task.id:
                    yield _problem(task.line, f"{other} and {task.id} may run in parallel and both touch {name}")


def _warnings(phases: Sequence[Phase]) -> Iterator[Problem]:
    if [phase.number for phase in phases] == ["all"]:
        yield _problem(1, "no `## Phase N: title`: the whole list is one phase")
    for task in _all(phases):
        if task.group and not task.files:
            yield _problem(task.line, f"{task.id} is marked [P] but has no `files:`")


def _all(phases: Sequence[Phase]) -> list[Task]:
    return [task for phase in phases for task in phase.tasks]


def _ordered(found: Iterator[Problem] | list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(found, key=lambda problem: problem.line))


def _problem(line: int, message: str) -> Problem:
    return Problem("", line, 1, message)
