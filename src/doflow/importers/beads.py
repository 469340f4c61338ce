"""beads: `.beads/issues.jsonl`, one issue per line with status, priority and dependencies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from doflow.importers import json_edit, work_items
from doflow.importers.model import Found, Imported
from doflow.importers.project_tree import ProjectTree, parse_json
from doflow.importers.work_items import WorkItem
from doflow.util.errors import FlowError, Problem

NAME = "beads"
_FILE = r"\.beads/(?:issues|beads)\.jsonl"
_CLOSED = frozenset(("closed", "tombstone"))
_LINE = re.compile(r"[^\n]*\n?")


def find(tree: ProjectTree) -> Found | None:
    lists, files = [], []
    for path in tree.paths(_FILE):
        try:
            lists.append(work_items.count_items(path, read_issues(tree.read_bytes_as_text(path), path)))
        except FlowError:
            continue
        files.append(path)
    if not files:
        return None
    start = ("doflow import beads", 'doit beads --goal="…"')
    return Found(NAME, (".beads",), tuple(lists), (), tuple(files), start if any(one.open for one in lists) else ())


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    for path in found.sources:
        yield from convert_file(tree, path)


def convert_file(tree: ProjectTree, path: str) -> Iterator[Imported]:
    items = read_issues(tree.read_bytes_as_text(path), path)
    yield work_items.work_flow(NAME, "The open issues of beads, in the order of their dependencies.", path, items)


def read_issues(text: str, file: str) -> tuple[WorkItem, ...]:
    """The issues; epics are left out, their children have the work."""
    found: dict[str, WorkItem] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        issue = parse_json(line, file, number)
        if not isinstance(issue, dict) or not isinstance(issue.get("id"), str) or not issue["id"].strip():
            raise FlowError((Problem(file, number, 1, "not an issue of beads: no `id`"),))
        if issue["id"] in found:
            raise FlowError((Problem(file, number, 1, f"duplicate issue {issue['id']}"),))
        if issue.get("issue_type") != "epic":
            found[issue["id"]] = _item(issue, number)
    return tuple(found.values())


def _item(issue: Mapping[str, Any], line: int) -> WorkItem:
    depends = issue.get("dependencies")
    blocks = [
        str(one.get("depends_on_id", ""))
        for one in (depends if isinstance(depends, list) else ())
        if isinstance(one, dict) and one.get("type") in ("blocks", "conditional-blocks")
    ]
    names = {"acceptance_criteria": "Accepted when: ", "design": "Design: ", "notes": "Notes: "}
    parts = [str(issue.get("description") or "")]
    parts += [f"{start}{issue[key]}" for key, start in names.items() if issue.get(key)]
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    priority = issue.get("priority")
    rank = priority if isinstance(priority, int) else 2
    is_done = str(issue.get("status", "")) in _CLOSED
    me = str(issue["id"])
    depends_on = tuple(dict.fromkeys(one for one in blocks if one and one != me))
    return WorkItem(me, str(issue.get("title") or ""), text, is_done, depends_on, rank, line)


def close_issue(text: str, issue: str, now: str) -> str:
    """The text with an issue closed: its status, `updated_at` and `closed_at`. Every other byte stays as it is."""
    for found in _LINE.finditer(text):
        line = found[0]
        if f'"{issue}"' not in line or parse_json(line, "issues.jsonl").get("id") != issue:
            continue
        line = json_edit.replace_value(line, ("status",), "closed")
        if json_edit.find_value(line, ("updated_at",)):
            line = json_edit.replace_value(line, ("updated_at",), now)
        if json_edit.find_value(line, ("closed_at",)):
            line = json_edit.replace_value(line, ("closed_at",), now)
        else:
            end = line.rindex("}")
            line = f'{line[:end]},"closed_at":{json.dumps(now)}{line[end:]}'
        return text[: found.start()] + line + text[found.end() :]
    raise KeyError(issue)
