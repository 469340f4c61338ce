"""`doflow tasks`: read, check and refresh task lists, whatever tool they were written for, and mark tasks as done."""

from __future__ import annotations

import argparse
import os
import re
import stat
from typing import Any

from rich.cells import cell_len, set_cell_size

from doflow.cli.output import say, say_json
from doflow.flow import tasklist
from doflow.flow.task_lists import Phase, Task, TaskList, parse_task_list
from doflow.importers import write_back
from doflow.util import atomic_files, timestamps
from doflow.util.errors import DoflowError, Problem, UsageError
from doflow.util.text import clean

ABOUT = (
    "Task lists of spec-kit, OpenSpec, Kiro, BMAD, plain checklists and doflow's own form. Exit 1 if a file is none."
)
EXAMPLES = """\
  doflow tasks show specs/001-login/tasks.md            phases and tasks
  doflow tasks show openspec/changes/x/tasks.md --json  the same for programs
  doflow tasks check .kiro/specs/x/tasks.md             problems, each with its line
  doflow tasks check tasks.md --strict                  must be doflow's own form
  doflow tasks done .taskmaster/tasks/tasks.json 12     mark a task as done, in the file's own format
  doflow tasks refresh specs/001-login/tasks.md         an agent proposes a new version, you accept it
"""
_WIDTH = 80
_LARGEST = 50_000_000
_ODD_BYTE = re.compile("[\udc80-\udcff]")


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="show|check|done|refresh", required=True)
    showing = verbs.add_parser("show", help="show the phases and tasks of a list")
    showing.add_argument("file", metavar="FILE", help="a task list")
    showing.add_argument("--json", action="store_true", help="print one JSON object")
    checking = verbs.add_parser("check", help="check that a file is a task list")
    checking.add_argument("file", metavar="FILE", help="a task list")
    checking.add_argument("--strict", action="store_true", help="accept doflow's own form only (docs/tasks.md)")
    doing = verbs.add_parser("done", help="mark a task as done in its own file")
    doing.add_argument("file", metavar="FILE", help="a task list, tasks.json, issues.jsonl or sprint-status.yaml")
    doing.add_argument("task", metavar="ID", help="task ID (T014, 3/T014, 12, TAG/12), issue or story")
    refreshing = verbs.add_parser("refresh", help="let an agent propose a new version, after the spec changed")
    refreshing.add_argument(
        "file", nargs="?", default="", metavar="FILE", help="(default: the list of this branch's run)"
    )
    refreshing.add_argument("-y", "--yes", action="store_true", help="accept it without a question")
    refreshing.add_argument("--agent", default="", metavar="NAME", help="(default: the agent that implements the list)")


def tasks(args: argparse.Namespace) -> int:
    if args.deed == "refresh":
        return _refresh(args)
    text = read_list_file(args.file)
    if args.deed == "done":
        return _mark_done(args.file, text, args.task)
    if args.deed == "show":
        return _show(args.file, text, args.json)
    return _check_strict(args.file, text) if args.strict else _check(args.file, text)


def _show(path: str, text: str, as_json: bool) -> int:
    tasks = _require_list(path, text)
    if as_json:
        say_json(_plain(tasks))
        return 0
    done = sum(task.done for task in tasks.tasks)
    phases = f"{_many(len(tasks.phases), 'phase')}, {done} of {_many(len(tasks.tasks), 'task')} done"
    say(f"{path}  ({tasks.style}: {phases})")
    for phase in tasks.phases:
        say()
        _say_phase(phase)
    if tasks.problems:
        say()
        _say_problems(path, tasks.problems)
    return 0


def _say_phase(phase: Phase) -> None:
    left = [task for task in phase.tasks if not task.done]
    optional = sum(task.optional for task in left)
    counts = {"done": len(phase.tasks) - len(left), "open": len(left) - optional, "optional": optional}
    count = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    name = f"Phase {phase.number}: {phase.title}" if phase.title else f"Phase {phase.number}"
    say(f"{_shorten(name, _WIDTH - len(count) - 4)}  ({count})")
    for task in phase.tasks:
        marks = f"{' [P]' if task.parallel else ''}{' (optional)' if task.optional else ''}"
        say(_shorten(f"  [{'x' if task.done else ' '}] {task.id}{marks} {task.text}", _WIDTH))


def _check(path: str, text: str) -> int:
    tasks = _require_list(path, text)
    _say_problems(path, tasks.problems)
    say(f"ok  {path}  ({tasks.style}, {_many(len(tasks.phases), 'phase')}, {_many(len(tasks.tasks), 'task')})")
    return 0


def _check_strict(path: str, text: str) -> int:
    found = tasklist.parse_task_list(text.removeprefix("\ufeff"))
    for problem in found.problems:
        say(f"{path}:{problem.line}: {problem.message}")
    _say_problems(path, found.warnings)
    count = f"{_many(len(found.phases), 'phase')}, {_many(sum(len(phase.tasks) for phase in found.phases), 'task')}"
    say(f"{_many(len(found.problems), 'problem')} in {path}" if found.problems else f"ok  {path}  (strict, {count})")
    return 1 if found.problems else 0


def _mark_done(path: str, text: str, task: str) -> int:
    new = write_back.mark_done(text, path, task, timestamps.now())
    if new != text:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        atomic_files.write_file(path, new.encode("utf-8", "surrogateescape"), mode)
    say(f"{'done' if new != text else 'already done'}: {task} in {path}")
    return 0


def _refresh(args: argparse.Namespace) -> int:
    from doflow.cli import list_refresh  # the other commands need no run

    text = read_list_file(args.file) if args.file else ""
    if args.file:
        _require_list(args.file, text)
    return list_refresh.refresh(args, text)


def _require_list(path: str, text: str) -> TaskList:
    tasks = parse_task_list(text)
    if not tasks.phases:
        problem = tasks.problems[0]
        raise DoflowError(f"{path}:{problem.line}: not a task list: {problem.message}")
    return tasks


def read_list_file(path: str) -> str:
    """The text of a file, byte for byte. What is not a regular file is not opened: a FIFO would block."""
    try:
        found = os.stat(path)
    except ValueError:
        raise UsageError(f"{path!r} is not a path") from None
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is a folder, not a task list", f"doflow tasks show {os.path.join(path, 'tasks.md')}")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a regular file")
    if found.st_size > _LARGEST:
        raise UsageError(f"{path} is too large for a task list: {found.st_size:,} bytes, at most {_LARGEST:,}")
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        text = file.read(_LARGEST)
    if "\0" in text or len(_ODD_BYTE.findall(text)) * 5 > len(text):
        raise UsageError(f"{path} is not a text file in UTF-8")
    return text


def _plain(tasks: TaskList) -> dict[str, Any]:
    return {
        "style": tasks.style,
        "phases": [
            {
                "number": phase.number,
                "title": phase.title,
                "done": phase.done,
                "tasks": [_plain_task(task) for task in phase.tasks],
            }
            for phase in tasks.phases
        ],
        "problems": [{"line": problem.line, "message": problem.message} for problem in tasks.problems],
    }


def _plain_task(task: Task) -> dict[str, Any]:
    names = ("id", "text", "done", "optional", "parallel", "files", "depends", "line")
    return {name: getattr(task, name) for name in names} | ({"head": True} if task.head else {})


def _say_problems(path: str, problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        say(f"warning: {path}:{problem.line}: {problem.message}")


def _shorten(line: str, width: int) -> str:
    """The line, at most as many columns wide; East Asian characters take two."""
    line = clean(line[: 2 * width])
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
