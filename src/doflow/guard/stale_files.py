"""Files in `.doflow/` that outlive a run but belong to it: never used for another run.

`pipeline-tasks.md` is the checklist of the task list, shown to the agents of all phases. It names its issue and its goal.
Three guards keep another run's file out, each sufficient alone: `clear` when a new run starts, `revalidate` when a run
resumes, `admitted` before it enters a prompt. Other leftovers of an earlier run of the same name are removed by `clear`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from doflow.flow import markdown
from doflow.runs import catalogue, fingerprint, session_layout
from doflow.runs.context import RunContext
from doflow.util import atomic_files, state_folder, timestamps
from doflow.util.errors import DoflowError

MOST = 20
_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[[ xX]\][ \t]+\S")
_SAID = re.compile(r"^[ \t]*(?:[-*+][ \t]*)?(issue|goal)[ \t]*:(.*)$", re.I)
_TITLE = re.compile(r"^#[ \t]+Pipeline Tasks[ \t]*(?:—|–|-|:)[ \t]*(\S.*?)[ \t]*$")
#: leftovers of an earlier run with the same name
_LEFT = ("window", "pipeline-state.json")


def clear(context: RunContext) -> None:
    """Guard 1: a new run begins with nothing of an earlier one, whatever it says. A bug-fix session leaves the list of the
    run that it belongs to alone."""
    if not session_layout.parent_session(context.run.dir):
        _remove(context)
    for name in _LEFT:
        with suppress(OSError):
            os.unlink(context.state_dir / name)
    with suppress(OSError):
        for entry in os.scandir(context.state_dir / "logs"):
            os.unlink(entry.path)


def revalidate(context: RunContext) -> None:
    """Guard 2: a resumed run keeps its own list; another run's, or one without an owner, is removed."""
    text = _text(context)
    if text is None or session_layout.parent_session(context.run.dir):
        return
    trouble = foreign(text, context)
    if trouble:
        _remove(context)
        context.events.add("warning", message=f"removed stale {state_folder.TASK_LIST}: {trouble}")


def admitted(context: RunContext) -> str:
    """Guard 3: the text for a prompt, '' = none. An unreadable file is not an error."""
    text = _text(context)
    if not text or not text.strip() or foreign(text, context):
        return ""
    head = next((found.line for found in markdown.headings(text) if _is_context(found.title)), 0)
    return "\n".join(text.splitlines()[:head]).strip()


def foreign(text: str, context: RunContext) -> str:
    """Why this list is not this run's; '' = it is."""
    if not any(_is_context(found.title) for found in markdown.headings(text)):
        return "it has no Context section"
    said = _said(text, "issue")
    if said is None:
        return "it has no Issue line"
    run = context.run
    if catalogue.bare_issue(said) is None:
        return f"its Issue line is empty (this run: {catalogue.format_issue(run.issue)})"
    if not catalogue.same_issue(said, run.issue):
        return f"it belongs to issue {said.strip()}, this run to {catalogue.format_issue(run.issue)}"
    return "" if catalogue.bare_issue(run.issue) else _other_goal(text, context)


def write(context: RunContext, lines: Sequence[str]) -> None:
    """Write the checklist of a new task list; a list without boxes gets no file."""
    boxes = [line.strip() for line in lines if _BOX.match(line)][:MOST]
    if not boxes or session_layout.parent_session(context.run.dir):
        return
    run = context.run
    about = [
        f"- Pipeline: {run.flow}", f"- Branch: {run.branch}", f"- Issue: {catalogue.format_issue(run.issue)}",
        f"- Goal: {_goal(context)}", f"- Generated: {timestamps.now()}",
    ]  # fmt: skip
    title = f"# Pipeline Tasks — {_shortened(context)}"
    text = "\n".join([title, "", "## Task Checklist", "", *boxes, "", "## Context", "", *about, ""])
    with suppress(DoflowError, OSError):  # only a convenience for the agents
        atomic_files.write_file(
            str(context.root / state_folder.TASK_LIST), text.encode("utf-8", "surrogateescape"), sync=False
        )


def checklist(text: str) -> list[str]:
    """The boxes of a list: those under `Task Checklist` if it has such a heading, else all."""
    part = markdown.section(text, "Task Checklist") or text
    return [line for _, line in markdown.prose(part)]


def _other_goal(text: str, context: RunContext) -> str:
    """Without an issue, runs are told apart by the goal: its digest, else the title, if present."""
    said = _said(text, "goal")
    if said is not None and said.strip():
        return "" if said.strip() == _goal(context) else "it was made for another goal"
    title = next((found[1] for line in text.splitlines() if (found := _TITLE.match(line))), "")
    if title and title != _shortened(context):
        return f"it was made for the goal {catalogue.shorten(title)!r}"
    return ""


def _said(text: str, key: str) -> str | None:
    """The value of the first line with this key, None if there is none."""
    found = (_SAID.match(line) for line in text.splitlines())
    return next((match[2] for match in found if match and match[1].lower() == key), None)


def _goal(context: RunContext) -> str:
    return fingerprint.short_hash(context.run.goal)


def _shortened(context: RunContext) -> str:
    return catalogue.shorten(context.run.goal, 200)


def _is_context(title: str) -> bool:
    return title.strip().casefold() == "context"


def _text(context: RunContext) -> str | None:
    try:
        return context.files.text(state_folder.TASK_LIST)
    except (DoflowError, OSError):
        return ""


def _remove(context: RunContext) -> None:
    with suppress(OSError):
        os.unlink(context.root / state_folder.TASK_LIST)
