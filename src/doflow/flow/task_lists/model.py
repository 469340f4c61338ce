"""The model of a task list: phases and tasks, whatever format they were written in."""

from __future__ import annotations

from dataclasses import dataclass

from doflow.util.errors import Problem


@dataclass(frozen=True, slots=True)
class Task:
    """One box. `line` counts from 1; `head`: this box is the heading of its phase."""

    id: str
    text: str
    line: int
    done: bool = False
    optional: bool = False
    parallel: bool = False
    story: str = ""
    files: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    head: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks that are worked together. `number` is as written (`3`, `3.1`, `A`), or counted where there is none."""

    number: str
    title: str
    line: int
    tasks: tuple[Task, ...]

    @property
    def done(self) -> bool:
        """Every task that is needed is ticked. The head follows the others; it decides only if nothing else is needed."""
        needed = [task for task in self.tasks if not task.optional]
        return all(task.done for task in [task for task in needed if not task.head] or needed)


@dataclass(frozen=True, slots=True)
class TaskList:
    """A task list as read. Without phases it is not a list, and the first problem says why."""

    style: str
    phases: tuple[Phase, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(task for phase in self.phases for task in phase.tasks)

    def find(self, name: str) -> tuple[Task, ...]:
        """The tasks with an id; `3/T014` names the one of phase 3, where the id is in more than one phase."""
        number, slash, task_id = name.rpartition("/")
        return tuple(
            task
            for phase in self.phases
            if not slash or phase.number == number
            for task in phase.tasks
            if task.id == task_id
        )
