"""The task lists of a project, those of spec-kit, OpenSpec, Kiro and BMAD and a plain tasks.md, and the phases of a run's list."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import NamedTuple

from doflow.flow import backlog, markdown, task_lists
from doflow.flow.markdown import Phase
from doflow.flow.model import Step
from doflow.runs import lockfile
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import ProjectFiles
from doflow.util.errors import UsageError

#: where the tools keep their lists, relative to the project
PLACES = (
    "specs/*/tasks.md",
    "openspec/changes/*/tasks.md",
    ".kiro/specs/*/tasks.md",
    "docs/stories/*.md",
    "docs/sprint-artifacts/*.md",
    "_bmad-output/implementation-artifacts/*.md",
    "tasks.md",
    "TASKS.md",
)
_MOST_BYTES = 8 << 20
_SHOWN = 10


class ListFile(NamedTuple):
    """A task list: its path relative to the project, how many of its tasks are done, how many open (optional ones apart)."""

    path: str
    done: int
    open: int


def find_task_lists(root: Path) -> tuple[ListFile, ...]:
    """Every task list in the usual places; files without a box are not lists."""
    files = ProjectFiles(root, "")
    paths = [path for place in PLACES for path in sorted(glob.glob(place, root_dir=root, include_hidden=True))]
    return tuple(found for path in dict.fromkeys(paths) if (found := _count(root, path, files)))


def choose_task_list(root: Path, given: str, folder: str, flow: str) -> str:
    """The path of the list to work on: the given one, the one in a folder, or the only unfinished list of the project."""
    if given:
        return _existing(root, given)
    if folder:
        return _existing(root, os.path.join(folder, "tasks.md"))
    found = [one for one in find_task_lists(root) if one.open and not _has_lock(root, one.path)]
    if len(found) == 1:
        return found[0].path
    if not found:
        places = ", ".join(dict.fromkeys(os.path.dirname(place) or place for place in PLACES))
        raise UsageError(f"no unfinished task list was found (in {places})", f"name it: doit {flow} --tasks=PATH")
    lines = [f"\n  {one.path}: {one.done} done, {one.open} open" for one in found[:_SHOWN]]
    lines += [f"\n  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    message = f"there are {len(found)} unfinished task lists; which one do you mean?{''.join(lines)}"
    raise UsageError(message, f"name it: doit {flow} --tasks={found[0].path}")


def run_folder(path: str) -> str:
    """The folder of the list if it is the run's folder, too: not the project itself, nor a folder of many lists."""
    return os.path.dirname(path) if os.path.basename(path).lower() == "tasks.md" else ""


def phases_to_work(step: Step, context: RunContext) -> tuple[Phase, ...]:
    """What this command works on: the phases of the step's list, or with --task one task of it."""
    if not context.options.task:
        return listed_phases(step, context)
    text = context.files.text(context.phases(step)) or ""
    return (task_lists.task_section(text, find_task(context.phases(step), text, context.options.task)),)


def find_task(path: str, text: str, name: str) -> task_lists.Task:
    """The one task of a list with this id; `2/T014` is the one of phase 2."""
    found = () if markdown.is_backlog(path) else task_lists.parse_task_list(text).find(name)
    show = f"doflow tasks show {path}"
    if not found:
        raise UsageError(f"{path} has no task {name}", show)
    if len(found) > 1:
        lines = ", ".join(str(task.line) for task in found)
        raise UsageError(
            f"{path} has {len(found)} tasks {name} (lines {lines})", f"name its phase, as in --task=2/{name}; {show}"
        )
    return found[0]


def listed_phases(step: Step, context: RunContext) -> tuple[Phase, ...]:
    """The phases of an implement step's list as they are worked; a list without phases counts as one phase."""
    path = context.phases(step)
    text = context.files.text(path) or ""
    if markdown.is_backlog(path):
        return backlog.subtask_phases(text, path)
    whole = (Phase("all", os.path.basename(path), text, 1),)
    if f"{step.id}:all" in context.record.steps:  # done as a whole, by a version that knew only `## Phase N: title`
        return whole
    sections = task_lists.phase_sections(text) or whole
    return tuple(part for phase in sections for part in _parts(step, phase, context))


def _parts(step: Step, phase: Phase, context: RunContext) -> tuple[Phase, ...]:
    """A long phase in parts. It stays whole, or in parts, if some of it was done so."""
    name, record = f"{step.id}:{phase.number}", context.record
    if name in record.steps or name in record.returned:
        return (phase,)
    prefix, most = f"{step.id}:{task_lists.part_prefix(phase.number)}", context.settings.max_tasks
    divided = any(known.startswith(prefix) for known in (*record.steps, *record.returned))
    return task_lists.phase_parts(phase) if divided or task_lists.has_more_tasks(phase.text, most) else (phase,)


def _existing(root: Path, given: str) -> str:
    full = os.path.realpath(os.path.join(root, given))
    base = os.path.realpath(root)
    if not full.startswith(base + os.sep):
        raise UsageError(f"{given} is not inside the project {base}", "name a task list of the project")
    path = os.path.relpath(full, base)
    if os.path.isdir(full):
        return _existing(root, os.path.join(path, "tasks.md"))
    text = ProjectFiles(root, "").text(path) if os.path.isfile(full) else None
    if text is None:
        raise UsageError(f"task list not found: {path}", "doflow init lists what was found")
    listed = task_lists.parse_task_list(text)
    if not listed.phases:
        problem = listed.problems[0]
        raise UsageError(f"{path}:{problem.line}: not a task list: {problem.message}", f"doflow tasks check {path}")
    return path


def _count(root: Path, path: str, files: ProjectFiles) -> ListFile | None:
    if not os.path.isfile(root / path) or os.path.getsize(root / path) > _MOST_BYTES:
        return None
    tasks = task_lists.parse_task_list(files.text(path) or "").tasks
    needed = [task for task in tasks if not task.optional]
    return ListFile(path, sum(task.done for task in needed), sum(not task.done for task in needed)) if tasks else None


def _has_lock(root: Path, path: str) -> bool:
    folder = run_folder(path)
    return bool(folder) and os.path.lexists(root / folder / lockfile.NAME)
