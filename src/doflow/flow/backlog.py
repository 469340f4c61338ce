"""`tasks.json`: a backlog of Phase > Milestone > Task > Subtask, parsed into phases of an implement step or into items. Pure.

doflow writes the statuses to record progress. They are not part of what a subtask asks for, so fingerprints and prompts use
the file without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from doflow.flow import markdown
from doflow.flow.markdown import Phase
from doflow.flow.parsing import schema
from doflow.util.errors import UsageError

PLANNED, READY, IMPLEMENTING, COMPLETE, FAILED = "Planned", "Ready", "Implementing", "Complete", "Failed"
#: nothing left to do
SETTLED = frozenset({COMPLETE, FAILED, "Obsolete"})
_PARTS = ("1. RESEARCH NOTE:", "2. INPUT:", "3. LOGIC:", "4. OUTPUT:")
_LEVELS = (("Phase", "P", "milestones"), ("Milestone", "M", "tasks"), ("Task", "T", "subtasks"), ("Subtask", "S", ""))

Item = dict[str, Any]


def parse_backlog(text: str, name: str) -> list[Item]:
    """The phases of a backlog; raises UsageError with its problems."""
    try:
        value = json.loads(text)
    except ValueError as cause:
        raise UsageError(f"{name} is not JSON: {cause}", f"fix it, or restore it: git checkout {name}") from cause
    found = [f"{_place(fault.path)}: {fault.message}" for fault in schema.faults(value, "tasks")]
    found = found or list(_problems(value["backlog"]))
    if found:
        raise UsageError("\n".join(f"{name}: {words}" for words in found[:20]), f"fix {name}")
    phases: list[Item] = value["backlog"]
    return phases


def subtasks(backlog: list[Item]) -> list[Item]:
    """Every subtask after the ones it depends on, otherwise in file order."""
    waiting = [item for item in all_items(backlog) if item["type"] == "Subtask"]
    ordered: list[Item] = []
    done: set[str] = set()
    while waiting:
        ready = next(item for item in waiting if done.issuperset(item["dependencies"]))
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready["id"])
    return ordered


def all_items(backlog: list[Item]) -> Iterator[Item]:
    """Every item at every level, parents first."""
    for item in backlog:
        yield item
        yield from all_items(_inner(item))


_last_parsed: list[Any] = ["", ()]


def subtask_phases(text: str, name: str) -> tuple[Phase, ...]:
    """One phase per subtask: its number is the id, its text everything the backlog says about it. The last file is cached,
    because each of its phases asks for it."""
    if _last_parsed[0] != text:
        backlog = parse_backlog(text, name)
        above = {item["id"]: item for item in all_items(backlog)}
        _last_parsed[:] = [text, tuple(Phase(it["id"], it["title"], _brief(it, above), 0) for it in subtasks(backlog))]
    found: tuple[Phase, ...] = _last_parsed[1]
    return found


def foreach_items(text: str, name: str) -> list[Item]:
    """The subtasks as items of a `foreach`: without status, with `work`, the name of their folder."""
    return [
        {"id": item["id"], "work": markdown.subtask_folder(item["id"])}
        | {key: value for key, value in item.items() if key != "status"}
        for item in subtasks(parse_backlog(text, name))
    ]


def without_statuses(text: str) -> str:
    """The backlog without statuses, for fingerprints. A file that is not JSON is returned unchanged."""
    try:
        return json.dumps(_stripped(json.loads(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def with_statuses(text: str, statuses: Mapping[str, str]) -> str:
    """The backlog with these statuses for its subtasks; the statuses of their parents follow from them."""
    value = json.loads(text)
    for item in value["backlog"]:
        _mark(item, statuses)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _mark(item: Item, statuses: Mapping[str, str]) -> str:
    inner = _inner(item)
    if not inner:
        item["status"] = statuses.get(item["id"], item["status"])
    else:
        item["status"] = _summed([_mark(part, statuses) for part in inner])
    return str(item["status"])


def _summed(parts: list[str]) -> str:
    """The status of a parent: complete if everything in it is settled, failed if something failed, else its progress."""
    if SETTLED.issuperset(parts):
        return FAILED if FAILED in parts else COMPLETE
    return PLANNED if set(parts) == {PLANNED} else IMPLEMENTING if set(parts) - {PLANNED, READY} else READY


def _inner(item: Item) -> list[Item]:
    found: list[Item] = next((item[key] for _, _, key in _LEVELS if key and key in item), [])
    return found


def _problems(backlog: list[Item]) -> Iterator[str]:
    """What the schema cannot check: ids match their parents, dependencies exist and have no cycle."""
    found = list(all_items(backlog))
    seen: set[str] = set()
    for item in found:
        if item["id"] in seen:
            yield f"{item['id']}: duplicate id"
        seen.add(item["id"])
    for item in found:
        for part in _inner(item):
            if not part["id"].startswith(f"{item['id']}."):
                yield f"{part['id']}: an item in {item['id']} needs an id that starts with `{item['id']}.`"
    leaves = {item["id"]: item for item in found if item["type"] == "Subtask"}
    if not leaves:
        yield "the backlog has no subtasks"
    for name, item in leaves.items():
        places = [item["context_scope"].find(part) for part in _PARTS]
        if -1 in places or places != sorted(places):
            yield f"{name}: its context_scope must have, in this order, {', '.join(f'`{part}`' for part in _PARTS)}"
        for other in item["dependencies"]:
            if other == name or other not in leaves:
                yield f"{name}: depends on {'itself' if other == name else f'{other}, which is not a subtask here'}"
    if len(leaves) == sum(item["type"] == "Subtask" for item in found):
        yield from _cycle(leaves)


def _cycle(leaves: Mapping[str, Item]) -> Iterator[str]:
    left = dict(leaves)
    while ready := [name for name, item in left.items() if not left.keys() & set(item["dependencies"]) - {name}]:
        for name in ready:
            del left[name]
    if left:
        yield f"dependency cycle: {', '.join(left)}"


def _brief(item: Item, above: Mapping[str, Item]) -> str:
    parts = item["id"].split(".")
    way = [above[".".join(parts[:depth])] for depth in range(1, len(parts)) if ".".join(parts[:depth]) in above]
    lines = [f"## {item['id']}: {item['title']}", ""]
    lines += [f"- {parent['type']} {parent['id']}: {parent['title']}. {parent['description']}" for parent in way]
    if item["dependencies"]:
        lines.append(f"- It builds on {', '.join(item['dependencies'])}, which is done.")
    lines += ["", item.get("description", ""), "", item["context_scope"]]
    return "\n".join(lines) + "\n"


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key != "status"}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def _place(path: Any) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
