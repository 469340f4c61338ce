"""The one reader of task lists: phases, tasks, what each touches and waits for, and all that is wrong. Pure.

The grammar stands in docs/tasks.md. Lines in code fences are text, not structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from doflow.flow import markdown as sections
from doflow.util.records import dataclass, regex, replace

_BOX = regex(r"^([ \t]*)[-*+][ \t]+\[([ xX])\][ \t]*(.*?)[ \t]*$")
_TASK = regex(r"^\[([A-Z]\d+)\](?:[ \t]+\[(P)(?::([\w-]+))?\])?[ \t]+(\S.*)$")
_MARK = regex(r"^\[[Pp](?:[:\s][^\]]*)?\]")
_NO_BOX = regex(r"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)(?:\[[^\]]?\][ \t]*)?\[?T\d{2,}\b")
_EXTRA = regex(r"^([ \t]*)(?:[-*+][ \t]+)?(files|depends):[ \t]*(.*?)[ \t]*$", re.IGNORECASE)
_LIKE_A_PHASE = regex(r"^phase\s*\d+\b", re.IGNORECASE)
_PHASE = regex(r"^Phase \d+:")
_FORM = "`- [ ] [T001] text`"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and in which line (from 1)."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """One box. `group`: tasks of one group may be done side by side ('' = on its own)."""

    id: str
    text: str
    line: int
    done: bool = False
    group: str = ""
    files: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """One `## Phase N: title` with its tasks; a list without phases is one, numbered `all`."""

    number: str
    title: str
    line: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class TaskList:
    """A task list as it was read; it holds when there are no `problems`. `warnings` are worth a word, no more."""

    phases: tuple[Phase, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse(text: str) -> TaskList:
    cut = sections.phases(text)
    bounds = [(phase, phase.line, phase.line + len(phase.text.splitlines()) - 1) for phase in cut]
    whole = sections.Phase("all", "", text, 1)
    lines = list(sections.prose(text))
    found: list[Problem] = list(_headings(text))
    phases = []
    for phase, first, last in bounds or [(whole, 1, len(text.splitlines()))]:
        mine = [(number + 1, line) for number, line in lines if first <= number + 1 <= last]
        phases.append(Phase(phase.number, phase.title, phase.line, _tasks(mine, found)))
    if cut:
        inside = {number for _, first, last in bounds for number in range(first, last + 1)}
        found += [
            Problem(number + 1, "this task stands in no phase: move it below a `## Phase N: title`")
            for number, line in lines
            if number + 1 not in inside and _BOX.match(line)
        ]
    found += [*_phases(phases), *_ids(phases), *_depends(phases), *_clashes(phases)]
    return TaskList(tuple(phases), _ordered(found), _ordered(_warnings(phases)))


def _headings(text: str) -> Iterator[Problem]:
    """Headings that were meant to be phases and are not read as such."""
    for heading in sections.headings(text):
        if _LIKE_A_PHASE.match(heading.title) and not (heading.level == 2 and _PHASE.match(heading.title)):
            shown = f"{'#' * heading.level} {heading.title}"
            yield Problem(heading.line + 1, f"a phase is `## Phase N: title`, this is `{shown}`")


def _tasks(lines: Sequence[tuple[int, str]], found: list[Problem]) -> tuple[Task, ...]:
    """The tasks of some lines; `found` gathers what is wrong with them."""
    tasks: list[Task] = []
    run = 0  # neighbouring `[P]` without a name are one group
    for number, line in lines:
        box, extra = _BOX.match(line), _EXTRA.match(line)
        if extra and not box:
            words = _extra(extra, tasks)
        elif box:
            named = _TASK.match(box[3])
            run += not (named and named[2])
            words = _form(named, line)
            if named:
                group = named[3] or f"P{run}" if named[2] else ""
                tasks.append(Task(named[1], named[4], number, box[2] != " ", group))
        else:
            words = f"a task is {_FORM}, this is `{line.strip()}`" if _NO_BOX.match(line) else ""
        if words:
            found.append(Problem(number, words))
    return tuple(tasks)


def _form(named: re.Match[str] | None, line: str) -> str:
    if named is None:
        return f"a task is {_FORM}, this is `{line.strip()}`"
    if _MARK.match(named[4]):
        return f"the mark of parallel work is `[P]` or `[P:group]`, this is `{line.strip()}`"
    return ""


def _extra(found: re.Match[str], tasks: list[Task]) -> str:
    """Adds a `files:` or `depends:` line to the task above it; what is wrong with it."""
    word = found[2].lower()
    if not found[1]:
        return f"`{word}:` must be indented below its task" if tasks else ""
    if not tasks:
        return f"`{word}:` stands below no task"
    names = tuple(name for part in found[3].split(",") if (name := part.strip().strip("`")))
    if not names:
        return f"`{word}:` names nothing"
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
                words = "stands there twice" if number == before else f"comes after Phase {before}"
                yield Problem(phase.line, f"Phase {phase.number} {words}: number the phases 1, 2, 3")
            before = max(before, number)
            if not phase.title:
                yield Problem(phase.line, f"Phase {phase.number} has no title: `## Phase {phase.number}: title`")
        if not phase.tasks:
            name = "the list" if phase.number == "all" else f"Phase {phase.number}"
            yield Problem(phase.line, f"{name} has no task {_FORM}")


def _ids(phases: Sequence[Phase]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for task in _all(phases):
        if task.id in seen:
            yield Problem(task.line, f"{task.id} stands there twice (first in line {seen[task.id]})")
        seen.setdefault(task.id, task.line)


def _depends(phases: Sequence[Phase]) -> Iterator[Problem]:
    place = {task.id: number for number, phase in enumerate(phases) for task in phase.tasks}
    for number, phase in enumerate(phases):
        for task in phase.tasks:
            for name in task.depends:
                if name not in place:
                    yield Problem(task.line, f"{task.id} depends on {name}, which is no task of this list")
                elif place[name] > number:
                    late = phases[place[name]].number
                    yield Problem(task.line, f"{task.id} depends on {name}, which comes later, in Phase {late}")
    graph = {task.id: tuple(name for name in task.depends if name in place) for task in _all(phases)}
    circle = _circle(graph)
    if circle:
        line = next(task.line for task in _all(phases) if task.id == circle[0])
        yield Problem(line, f"the tasks wait for each other: {' -> '.join(circle)}")


def _circle(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One circle, its first task at both ends; () = none."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(reversed(error.args[1]))
    return ()


def _clashes(phases: Sequence[Phase]) -> Iterator[Problem]:
    """The same file or glob in two tasks that may be done side by side."""
    for phase in phases:
        seen: dict[tuple[str, str], str] = {}
        for task in phase.tasks:
            for name in dict.fromkeys(task.files) if task.group else ():
                other = seen.setdefault((task.group, name), task.id)
                if other != task.id:
                    yield Problem(task.line, f"{other} and {task.id} may be done side by side and both touch {name}")


def _warnings(phases: Sequence[Phase]) -> Iterator[Problem]:
    if [phase.number for phase in phases] == ["all"]:
        yield Problem(1, "no `## Phase N: title`: the whole list is one phase")
    for task in _all(phases):
        if task.group and not task.files:
            yield Problem(task.line, f"{task.id} is marked [P] and names no `files:`")


def _all(phases: Sequence[Phase]) -> list[Task]:
    return [task for phase in phases for task in phase.tasks]


def _ordered(found: Iterator[Problem] | list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(found, key=lambda problem: problem.line))
