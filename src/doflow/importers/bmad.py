"""BMAD: stories with tasks, in the order of sprint-status.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doflow.importers import agent_commands, flow_text, list_counts
from doflow.importers.model import Found, FoundList, Imported, NewFile, NothingToImport, NotMapped
from doflow.importers.project_tree import ProjectTree
from doflow.util.errors import FlowError

NAME = "bmad"
_STATUS = r"(?:.+/)?sprint-status\.ya?ml"
_STORY = r"(?:.+/)?(?:\d+[-.]\d+[-.].+|story-.+|\d+\.\d+\.story)\.md"
_PLACES = re.compile(r"(?:^|/)(?:stories|sprint-artifacts|implementation-artifacts)/")
_KEY = re.compile(r"\d+-\d+(?:-.*)?")
_LOCATION = re.compile(r"""^story_location:\s*["']?([^"'#\n]*?)["']?\s*(?:#.*)?$""", re.MULTILINE)
#: stories with nothing left to build
_BUILT = frozenset(("done", "review", "optional"))


def find(tree: ProjectTree) -> Found | None:
    statuses = tree.paths(_STATUS)
    set_up = sorted(
        {path.partition("/")[0] for path in tree.files if re.match(r"(?:_bmad|\.bmad|bmad-core)[^/]*/", path)}
    )
    paths = [path for path in tree.paths(_STORY) if _PLACES.search(path) and not path.startswith(".")]
    if not statuses and not set_up and not any("/stories/" in f"/{path}" for path in paths):
        return None
    counted = list_counts.count_lists(tree, paths)
    if not (statuses or set_up or counted):
        return None
    commands = agent_commands.find_commands(tree, "bmad-")
    folders = (*set_up, *sorted({one.path.rpartition("/")[0] for one in counted}))
    left = _in_order(tree, statuses[0], counted) if statuses else [one for one in counted if one.open]
    typed = list_counts.to_type(left)
    start = ("doflow import bmad", 'doit bmad --goal="…"') if statuses and left else ()
    return Found(NAME, folders, counted, commands, statuses, (*typed, *start))


def _in_order(tree: ProjectTree, status: str, counted: tuple[FoundList, ...]) -> list[FoundList]:
    """The unfinished stories in the order of the sprint."""
    by_path = {one.path: one for one in counted if one.open}
    try:
        stories = read_status(tree, status)
    except FlowError:
        return list(by_path.values())
    return [by_path[path] for _, state, path in stories if path in by_path and state not in _BUILT]


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    if not found.sources:
        hint = "doit implement --tasks=STORY.md does one story"
        raise NothingToImport(found.folders[0] if found.folders else ".", "no sprint-status.yaml found", hint)
    yield from convert_file(tree, found.sources[0])


def convert_file(tree: ProjectTree, path: str) -> Iterator[Imported]:
    """A flow that builds the stories that are ready, one after the other, and marks each as ready for review."""
    steps: dict[str, dict[str, Any]] = {}
    notes = []
    for key, state, story in read_status(tree, path):
        if state in _BUILT:
            continue
        if not story:
            line = _line_of(tree, path, key)
            notes.append(
                NotMapped(path, line, f"story {key} ({state})", "it has no story file yet: write it with BMAD first")
            )
            continue
        step = flow_text.step_name(f"story-{key}"[:40], steps)
        steps[step] = {"kind": "implement", "about": f"Story {key}", "phases": f"/{story}", "prompt": "implement.md"}
        steps[step] |= {"reads": ["input.md", f"/{story}"], "commit": f"Story {key}: {{title}}"}
        done = flow_text.step_name(f"review-{key}"[:40], steps)
        steps[done] = {
            "kind": "shell",
            "about": f"mark {key} as ready for review",
            "run": ["doflow", "tasks", "done", path, key],
            "writes": [path],
        }
    if not steps:
        raise NothingToImport(path, "no story is ready to be built", "write the next story with BMAD first")
    flow = {
        "flow": NAME,
        "about": "The stories of the sprint that are ready, in their order.",
        "params": {"goal": {"about": "The goal of the sprint", "required": True}},
        "steps": steps,
    }
    yield Imported(NAME, path, (NewFile("flows/bmad.yaml", flow_text.write_flow(flow, path)),), tuple(notes))


def read_status(tree: ProjectTree, path: str) -> list[tuple[str, str, str]]:
    """The stories of a sprint: key, status, and the story file ('' = none)."""
    doc = tree.read_yaml(path)
    table = doc.value.get("development_status")
    if not isinstance(table, dict):
        raise FlowError((doc.problem((), "not a sprint-status.yaml of BMAD: no `development_status`"),))
    folder = path.rpartition("/")[0]
    told = _LOCATION.search(tree.read_text(path))
    folders = dict.fromkeys(
        (folder, f"{folder}/stories".lstrip("/"), told[1].strip("/ ") if told else folder, "docs/stories")
    )
    stories = []
    for key, state in table.items():
        if _KEY.fullmatch(key):
            names = [f"{one}/{key}.md".lstrip("/") for one in folders]
            stories.append((key, str(state), next((name for name in names if name in tree.known), "")))
    return stories


def _line_of(tree: ProjectTree, path: str, key: str) -> int:
    return tree.read_yaml(path).where(("development_status", key), key=True)[0]


def set_status(text: str, story: str, status: str) -> str:
    """The text with another status of a story: nothing else changes."""
    start = re.search(r"^development_status:[^\n]*\n", text, re.MULTILINE)
    entry = re.compile(rf"""^[ \t]+["']?{re.escape(story)}["']?[ \t]*:[ \t]*(["']?)([\w-]+)\1""", re.MULTILINE)
    found = entry.search(text, start.end()) if start else None
    if found is None:
        raise KeyError(story)
    return f"{text[: found.start(2)]}{status}{text[found.end(2) :]}"
