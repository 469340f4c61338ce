"""`tasks.json`: a backlog of Phase > Milestone > Task > Subtask, read as phases of an implement step and as items. Pure.

Statuses in it are doflow's own words about what is done: they are no part of what a subtask asks for, and whoever reads the
file to learn what is to be done reads it without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from doflow.flow import markdown as sections
from doflow.flow.markdown import Phase
from doflow.util.errors import UsageError

PLANNED, READY, IMPLEMENTING, COMPLETE, FAILED = "Planned", "Ready", "Implementing", "Complete", "Failed"
#: nothing is left to do for these
SETTLED = frozenset({COMPLETE, FAILED, "Obsolete"})
_PARTS = ("1. RESEARCH NOTE:", "2. INPUT:", "3. LOGIC:", "4. OUTPUT:")
_LEVELS = (("Phase", "P", "milestones"), ("Milestone", "M", "tasks"), ("Task", "T", "subtasks"), ("Subtask", "S", ""))

Item = dict[str, Any]


def parse(text: str, name: str) -> list[Item]:
    """The phases of a file; what is wrong with it, all of it, is an error in words."""
    from doflow.flow.parsing import schema

    try:
        value = json.loads(text)
    except ValueError as cause:
        raise UsageError(f"{name} is not JSON: {cause}", f"mend it, or take it back: git checkout {name}") from cause
    found = [f"{_place(fault.path)}: {fault.message}" for fault in schema.faults(value, "tasks")]
    found = found or list(_problems(value["backlog"]))
    if found:
        raise UsageError("\n".join(f"{name}: {words}" for words in found[:20]), f"mend it: {name}")
    phases: list[Item] = value["backlog"]
    return phases


def subtasks(backlog: list[Item]) -> list[Item]:
    """Every subtask, none before those it depends on, otherwise in the order of the file."""
    waiting = [item for item in every(backlog) if item["type"] == "Subtask"]
    ordered: list[Item] = []
    done: set[str] = set()
    while waiting:
        ready = next(item for item in waiting if done.issuperset(item["dependencies"]))
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready["id"])
    return ordered


def every(backlog: list[Item]) -> Iterator[Item]:
    """Every item at every level, parents first."""
    for item in backlog:
        yield item
        yield from every(_inner(item))


_read: list[Any] = ["", ()]


def phases(text: str, name: str) -> tuple[Phase, ...]:
    """One phase per subtask: its number is its id, its text all that the backlog says about it. The file that was asked
    last is remembered: every one of its phases asks for it."""
    if _read[0] != text:
        backlog = parse(text, name)
        above = {item["id"]: item for item in every(backlog)}
        _read[:] = [text, tuple(Phase(it["id"], it["title"], _brief(it, above), 0) for it in subtasks(backlog))]
    found: tuple[Phase, ...] = _read[1]
    return found


def items(text: str, name: str) -> list[Item]:
    """The subtasks as items of a `foreach`: without status, with `work`, the name of the folder for their papers."""
    found = subtasks(parse(text, name))
    return [{"id": item["id"], "work": sections.work(item["id"]), **_without_status(item)} for item in found]


def bare(text: str) -> str:
    """What the file asks for: the same for any status. A file that is no JSON stays as it is."""
    try:
        return json.dumps(_stripped(json.loads(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def marked(text: str, statuses: Mapping[str, str]) -> str:
    """The same backlog with these statuses for its subtasks; what is above them follows from what is in it."""
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
    """Of what is inside: done when all is settled, failed if some of it failed; else how far it has come."""
    if SETTLED.issuperset(parts):
        return FAILED if FAILED in parts else COMPLETE
    return PLANNED if set(parts) == {PLANNED} else IMPLEMENTING if set(parts) - {PLANNED, READY} else READY


def _inner(item: Item) -> list[Item]:
    found: list[Item] = next((item[key] for _, _, key in _LEVELS if key and key in item), [])
    return found


def _problems(backlog: list[Item]) -> Iterator[str]:
    """What a schema cannot say: ids that stand where they belong, dependencies that can be met."""
    found = list(every(backlog))
    seen: set[str] = set()
    for item in found:
        if item["id"] in seen:
            yield f"{item['id']}: there are two items with this id"
        seen.add(item["id"])
    for item in found:
        for part in _inner(item):
            if not part["id"].startswith(f"{item['id']}."):
                yield f"{part['id']}: it stands in {item['id']}, so its id begins with `{item['id']}.`"
    leaves = {item["id"]: item for item in found if item["type"] == "Subtask"}
    if not leaves:
        yield "there is no subtask: nothing would be done"
    for name, item in leaves.items():
        places = [item["context_scope"].find(part) for part in _PARTS]
        if -1 in places or places != sorted(places):
            yield f"{name}: its context_scope has, in this order, {', '.join(f'`{part}`' for part in _PARTS)}"
        for other in item["dependencies"]:
            if other == name or other not in leaves:
                yield f"{name}: it depends on {other}, which is {'itself' if other == name else 'no subtask here'}"
    if len(leaves) == sum(item["type"] == "Subtask" for item in found):
        yield from _circle(leaves)


def _circle(leaves: Mapping[str, Item]) -> Iterator[str]:
    left = dict(leaves)
    while ready := [name for name, item in left.items() if not left.keys() & set(item["dependencies"]) - {name}]:
        for name in ready:
            del left[name]
    if left:
        yield f"these subtasks wait for each other: {', '.join(left)}"


def _brief(item: Item, above: Mapping[str, Item]) -> str:
    parts = item["id"].split(".")
    way = [above[".".join(parts[:depth])] for depth in range(1, len(parts)) if ".".join(parts[:depth]) in above]
    lines = [f"## {item['id']}: {item['title']}", ""]
    lines += [f"- {parent['type']} {parent['id']}: {parent['title']}. {parent['description']}" for parent in way]
    if item["dependencies"]:
        lines.append(f"- It builds on {', '.join(item['dependencies'])}, which is done.")
    lines += ["", item.get("description", ""), "", item["context_scope"]]
    return "\n".join(lines) + "\n"


def _without_status(item: Item) -> Item:
    return {key: value for key, value in item.items() if key != "status"}


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key != "status"}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def _place(path: Any) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
