"""Task lists as people have them: spec-kit, OpenSpec, Kiro, BMAD stories, plain checklists and doflow's own form.

`parse_task_list(text)` returns a `TaskList`: its style, its phases with their tasks, and its problems. It takes any text and
never raises; a text without a box has no phases, and its first problem says why. `tick(text, task)` returns the text with
one box ticked and every other byte as it was. `TaskList.find("T014")` finds a task by its id. `phase_sections(text)` cuts the
text into its phases, `phase_parts(phase)` a long phase into parts. `revise(old, answer)` takes a new version of a list and keeps
what is ticked.

Nothing here reads or writes files. Read a list with `errors="surrogateescape"` and `newline=""`, and write it the same way:
line ends, a byte order mark and odd bytes then survive. The strict form is checked by `doflow.flow.tasklist`.
"""

from doflow.flow.task_lists.model import Phase, Task, TaskList
from doflow.flow.task_lists.reader import parse_task_list, tick
from doflow.flow.task_lists.revision import revise
from doflow.flow.task_lists.sections import (
    has_more_tasks,
    is_ticked,
    part_prefix,
    phase_parts,
    phase_sections,
    task_section,
    without_optional,
)

__all__ = [
    "Phase",
    "Task",
    "TaskList",
    "has_more_tasks",
    "is_ticked",
    "parse_task_list",
    "part_prefix",
    "phase_parts",
    "phase_sections",
    "revise",
    "task_section",
    "tick",
    "without_optional",
]
