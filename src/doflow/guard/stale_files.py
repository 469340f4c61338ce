"""Files that live from run to run in `.doflow/` and belong to one run only: never taken for another run's.

`pipeline-tasks.md` is the checklist of the task list, shown to the agents of all phases. It names its issue and its goal.
Three guards keep another run's out, each enough alone: `clear` at the start of a new run, `revalidate` when a run goes on,
`admitted` before it enters a prompt. What else an earlier run of the same name left behind is cleared by the first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from doflow.flow import markdown as sections
from doflow.runs import catalogue as runs, catalogue_issues as issues, session_layout as sessionpaths
from doflow.runs.context import TASKS, World
from doflow.runs.state import event_log as ledger, fingerprint as keys
from doflow.util import atomic_files as files
from doflow.util.errors import DoflowError
from doflow.util.records import regex

MOST = 20
_BOX = regex(r"^[ \t]*[-*+][ \t]+\[[ xX]\][ \t]+\S")
_SAID = regex(r"^[ \t]*(?:[-*+][ \t]*)?(issue|goal)[ \t]*:(.*)$", re.I)
_TITLE = regex(r"^#[ \t]+Pipeline Tasks[ \t]*(?:—|–|-|:)[ \t]*(\S.*?)[ \t]*$")
#: of an earlier run with the same name, should its folder still be there
_LEFT = ("window", "pipeline-state.json")


def clear(world: World) -> None:
    """Guard 1: a new run begins with nothing of an earlier one, whatever it says. A bug-fix session leaves the list of the
    run that it belongs to alone."""
    if not sessionpaths.parent(world.run.dir):
        _remove(world)
    for name in _LEFT:
        with suppress(OSError):
            os.unlink(world.state_dir / name)
    with suppress(OSError):
        for entry in os.scandir(world.state_dir / "logs"):
            os.unlink(entry.path)


def revalidate(world: World) -> None:
    """Guard 2: a run that goes on keeps its own list; any other one, or one that does not say whose it is, goes."""
    text = _text(world)
    if text is None or sessionpaths.parent(world.run.dir):
        return
    trouble = foreign(text, world)
    if trouble:
        _remove(world)
        world.ledger.add("warning", message=f"stale {TASKS} is removed: {trouble}")


def admitted(world: World) -> str:
    """Guard 3: what enters a prompt, '' = nothing. A file that cannot be read stops no work."""
    text = _text(world)
    if not text or not text.strip() or foreign(text, world):
        return ""
    head = next((found.line for found in sections.headings(text) if _is_context(found.title)), 0)
    return "\n".join(text.splitlines()[:head]).strip()


def foreign(text: str, world: World) -> str:
    """Why this list is not this run's; '' = it is."""
    if not any(_is_context(found.title) for found in sections.headings(text)):
        return "it has no Context section"
    said = _said(text, "issue")
    if said is None:
        return "it has no Issue line"
    run = world.run
    if issues.bare(said) is None:
        return f"its Issue line is empty (this run: {issues.shown(run.issue)})"
    if not issues.same(said, run.issue):
        return f"it belongs to issue {said.strip()}, this run to {issues.shown(run.issue)}"
    return "" if issues.bare(run.issue) else _other_goal(text, world)


def write(world: World, lines: Sequence[str]) -> None:
    """The checklist of a task list that was just made; a list without boxes leaves no file."""
    boxes = [line.strip() for line in lines if _BOX.match(line)][:MOST]
    if not boxes or sessionpaths.parent(world.run.dir):
        return
    run = world.run
    about = [
        f"- Pipeline: {run.flow}", f"- Branch: {run.branch}", f"- Issue: {issues.shown(run.issue)}",
        f"- Goal: {_goal(world)}", f"- Generated: {ledger.now()}",
    ]  # fmt: skip
    title = f"# Pipeline Tasks — {_shortened(world)}"
    text = "\n".join([title, "", "## Task Checklist", "", *boxes, "", "## Context", "", *about, ""])
    with suppress(DoflowError, OSError):  # a convenience for the agents: without it they do the same work
        files.write(str(world.root / TASKS), text.encode("utf-8", "surrogateescape"), sync=False)


def checklist(text: str) -> list[str]:
    """The boxes of a list: those under `Task Checklist` if it has such a heading, else all."""
    part = sections.section(text, "Task Checklist") or text
    return [line for _, line in sections.prose(part)]


def _other_goal(text: str, world: World) -> str:
    """Without an issue the goal tells runs apart: by its digest, else by the title, as far as they are there."""
    said = _said(text, "goal")
    if said is not None and said.strip():
        return "" if said.strip() == _goal(world) else "it was made for another goal"
    title = next((found[1] for line in text.splitlines() if (found := _TITLE.match(line))), "")
    if title and title != _shortened(world):
        return f"it was made for the goal {runs.shorten(title)!r}"
    return ""


def _said(text: str, key: str) -> str | None:
    """The first line of the file that says it, None if none does."""
    found = (_SAID.match(line) for line in text.splitlines())
    return next((match[2] for match in found if match and match[1].lower() == key), None)


def _goal(world: World) -> str:
    return keys.short(world.run.goal)


def _shortened(world: World) -> str:
    return runs.shorten(world.run.goal, 200)


def _is_context(title: str) -> bool:
    return title.strip().casefold() == "context"


def _text(world: World) -> str | None:
    try:
        return world.place.text(TASKS)
    except (DoflowError, OSError):
        return ""


def _remove(world: World) -> None:
    with suppress(OSError):
        os.unlink(world.root / TASKS)
