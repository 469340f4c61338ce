"""taskmaster: `.taskmaster/tasks/tasks.json`, tasks by tag with statuses and dependencies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from doflow.importers import flow_text, json_edit, work_items
from doflow.importers.model import Found, Imported, NothingToImport
from doflow.importers.project_tree import ProjectTree, parse_json
from doflow.importers.work_items import WorkItem
from doflow.util.errors import FlowError, Problem

NAME = "taskmaster"
_FILE = r"(?:\.taskmaster/tasks/|tasks/)?tasks\.json"
_CLOSED = frozenset(("done", "completed", "cancelled"))


def find(tree: ProjectTree) -> Found | None:
    lists, flows = [], []
    for path in tree.paths(_FILE):
        try:
            tags = read_tags(tree.read_json(path), path)
        except FlowError:
            continue
        lists += [
            work_items.count_items(path if len(tags) == 1 else f"{path}#{tag}", items) for tag, items in tags.items()
        ]
        flows += [_flow_name(tag, tags) for tag in _unfinished(tags)]
    if not lists:
        return None
    files = tuple(dict.fromkeys(one.path.partition("#")[0] for one in lists))
    start = ("doflow import taskmaster", f'doit {flows[0]} --goal="…"') if flows else ()
    folders = (".taskmaster",) if ".taskmaster" in tree.folders else ()
    return Found(NAME, folders, tuple(lists), (), files, start)


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    for path in found.sources:
        yield from convert_file(tree, path)


def convert_file(tree: ProjectTree, path: str) -> Iterator[Imported]:
    """A flow for each tag that has open tasks."""
    tags = read_tags(tree.read_json(path), path)
    left = _unfinished(tags)
    if not left:
        raise NothingToImport(path, "no open task", "there is nothing to import")
    for tag in left:
        about = "The open tasks of taskmaster, in the order of their dependencies."
        yield work_items.work_flow(_flow_name(tag, tags), about, path, tags[tag], tag)


def _unfinished(tags: Mapping[str, Sequence[WorkItem]]) -> list[str]:
    return [tag for tag, items in tags.items() if not all(item.done for item in items)]


def _flow_name(tag: str, tags: Collection[str]) -> str:
    return NAME if tag in ("", "master") or len(tags) == 1 else flow_text.flow_name(f"{NAME}-{tag}", NAME)


def read_tags(value: Any, file: str) -> dict[str, tuple[WorkItem, ...]]:
    """The tasks by tag; a file without tags has the tag ''. FlowError for what is not a tasks.json."""
    if isinstance(value, dict) and isinstance(value.get("tasks"), list):
        return {"": _items(value["tasks"], file)}
    tags = value if isinstance(value, dict) else {}
    found = {
        str(tag): _items(inner["tasks"], file)
        for tag, inner in tags.items()
        if isinstance(inner, dict) and isinstance(inner.get("tasks"), list)
    }
    if not found:
        raise FlowError((Problem(file, 1, 1, "not a tasks.json of taskmaster: no list of `tasks`"),))
    return found


def _items(tasks: list[Any], file: str) -> tuple[WorkItem, ...]:
    found: dict[str, WorkItem] = {}
    for task in tasks:
        if not isinstance(task, dict) or "id" not in task:
            raise FlowError((Problem(file, 1, 1, "a task without `id`"),))
        item = _item(task)
        if item.id in found:
            raise FlowError((Problem(file, 1, 1, f"duplicate task {item.id}"),))
        found[item.id] = item
    return tuple(found.values())


def _item(task: Mapping[str, Any]) -> WorkItem:
    depends = task.get("dependencies")
    names = tuple(str(one).partition(".")[0] for one in depends) if isinstance(depends, list) else ()
    subtasks = [one for one in _subtasks(task) if isinstance(one, dict)]
    parts = [str(task.get(key) or "") for key in ("description", "details")]
    if task.get("testStrategy"):
        parts.append(f"How it is tested: {task['testStrategy']}")
    listed = [_line(one) for one in subtasks if not _is_closed(one)]
    parts += ["Subtasks:\n" + "\n".join(listed)] if listed else []
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    me = str(task["id"])
    depends_on = tuple(dict.fromkeys(name for name in names if name != me))
    return WorkItem(me, str(task.get("title") or ""), text, _is_closed(task), depends_on)


def _subtasks(task: Mapping[str, Any]) -> Sequence[Any]:
    listed = task.get("subtasks")
    return listed if isinstance(listed, list) else ()


def _line(subtask: Mapping[str, Any]) -> str:
    parts = [" ".join(str(subtask.get(key) or "").split()) for key in ("title", "description")]
    return f"- {': '.join(part for part in parts if part)}"


def _is_closed(task: Mapping[str, Any]) -> bool:
    return str(task.get("status", "")).lower() in _CLOSED


def set_status(text: str, task: str, status: str, tag: str = "") -> str:
    """The text with another status of a task (`5`, with its open subtasks) or subtask (`5.2`): nothing else changes."""
    path, found = _find(parse_json(text, "tasks.json"), task, tag)
    text = json_edit.replace_value(text, (*path, "status"), status)
    for place, subtask in enumerate(_subtasks(found) if "." not in task else ()):
        if isinstance(subtask, dict) and "status" in subtask and not _is_closed(subtask):
            text = json_edit.replace_value(text, (*path, "subtasks", place, "status"), status)
    return text


def _find(value: Any, task: str, tag: str) -> tuple[tuple[str | int, ...], Mapping[str, Any]]:
    """A task or subtask and its path; KeyError if there is none. Without a tag, `master` comes first."""
    tables: dict[tuple[str, ...], Any] = {(): value}
    if isinstance(value, dict) and not isinstance(value.get("tasks"), list):
        tables = {
            (name,): value[name] for name in sorted(value, key=lambda name: name != "master") if tag in ("", name)
        }
    first, _, second = task.partition(".")
    for start, table in tables.items():
        listed: Any = table.get("tasks") if isinstance(table, dict) else None
        place = _position(listed, first)
        if place is None:
            continue
        if not second:
            return (*start, "tasks", place), listed[place]
        inner = _position(listed[place].get("subtasks"), second)
        if inner is not None:
            return (*start, "tasks", place, "subtasks", inner), listed[place]["subtasks"][inner]
    raise KeyError(task)


def _position(listed: Any, name: str) -> int | None:
    tasks = listed if isinstance(listed, list) else []
    return next((n for n, one in enumerate(tasks) if isinstance(one, dict) and str(one.get("id")) == name), None)
