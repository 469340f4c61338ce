"""Work items of trackers (tasks with statuses and dependencies), and flows that do the open ones in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from doflow.importers import flow_text
from doflow.importers.model import FoundList, Imported, NewFile, NothingToImport, NotMapped
from doflow.util.errors import FlowError, Problem

#: more open items than this are not one run
MOST_ITEMS = 200


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One task: `text` is everything an agent needs to know, `line` where it is in its file (0 = not known)."""

    id: str
    title: str
    text: str = ""
    done: bool = False
    depends: tuple[str, ...] = ()
    rank: int = 0
    line: int = 0


def count_items(path: str, items: Sequence[WorkItem]) -> FoundList:
    done = sum(item.done for item in items)
    return FoundList(path, done, len(items) - done)


def order_items(items: Sequence[WorkItem], file: str) -> tuple[WorkItem, ...]:
    """The open items: what they depend on first, then by rank and place. A cycle is an error."""
    left = {item.id: item for item in items if not item.done}
    place = {item.id: (item.rank, number) for number, item in enumerate(items)}
    sorter = TopologicalSorter({item.id: [one for one in item.depends if one in left] for item in left.values()})
    try:
        sorter.prepare()
    except CycleError as error:
        message = f"dependency cycle: {' -> '.join(reversed(error.args[1]))}"
        line = left[error.args[1][0]].line or 1
        raise FlowError((Problem(file, line, 1, message, "remove one of the dependencies"),)) from None
    ordered: list[WorkItem] = []
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=lambda name: place[name])
        ordered.append(left[ready.pop(0)])
        sorter.done(ordered[-1].id)
    return tuple(ordered)


def work_flow(name: str, about: str, file: str, items: Sequence[WorkItem], tag: str = "") -> Imported:
    """A flow with a step for each open item, and one after it that marks the item as done in its own file."""
    ordered = order_items(items, file)
    notes = [
        NotMapped(file, item.line or 1, f"{item.id} {item.title}", f"left out: more than {MOST_ITEMS} are open")
        for item in ordered[MOST_ITEMS:]
    ]
    known = {item.id for item in items}
    for item in ordered[:MOST_ITEMS]:
        missing = [one for one in item.depends if one not in known]
        notes += [
            NotMapped(file, item.line or 1, f"{item.id} depends on {one}", "there is no such item") for one in missing
        ]
    steps: dict[str, dict[str, Any]] = {}
    for item in ordered[:MOST_ITEMS]:
        step = flow_text.step_name(item.id if item.id[:1].isalpha() else f"task-{item.id}", steps)
        title = " ".join(item.title.split()) or item.id
        text = flow_text.literal(f"Do {item.id}: {title}\n\n{item.text}".strip())
        steps[step] = {"about": flow_text.literal(title), "prompt": f"{text}\n" if "\n" in text else f"{text}."}
        steps[step] |= {"makes": f"{step}.md", "from": "text", "writes": ["**"]}
        done = flow_text.step_name(f"done-{step}", steps)
        steps[done] = {
            "kind": "shell",
            "about": f"mark {item.id} as done",
            "run": ["doflow", "tasks", "done", file, f"{tag}/{item.id}" if tag else item.id],
            "writes": [file],
        }
    if not steps:
        raise NothingToImport(file, "no open task", "there is nothing to import")
    flow = {
        "flow": name,
        "about": about,
        "params": {"goal": {"about": "Why these tasks are done now", "required": True}},
        "steps": steps,
    }
    return Imported(name, file, (NewFile(f"flows/{name}.yaml", flow_text.write_flow(flow, file)),), tuple(notes))
