"""Markdown for flows: headings, sections, phases, checkboxes, questions.

Headings and checkboxes inside code fences are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_PHASE = re.compile(r"^Phase (\d+):[ \t]*(.*)$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_BULLET = r"^([ \t]*(?:[-*+•]|\d{1,9}[.)])[ \t]+)"
_BOX = re.compile(_BULLET + r"\[[xX✓✔✅☑√~-]\]", re.M)
_EMPTY = re.compile(_BULLET + r"\[ \](.*)$", re.M)
_QUESTION = re.compile(r"\[NEEDS CLARIFICATION:[ \t]*((?:[^\[\]]|\[[^\[\]]*\])*)\]")


class Heading(NamedTuple):
    """A heading: its level, its title, the number of its line (from 0)."""

    level: int
    title: str
    line: int


class Phase(NamedTuple):
    """One `## Phase N: title` section; `text` holds the heading too. `part_of`: the phase that this is a part of."""

    number: str
    title: str
    text: str
    line: int
    part_of: str = ""


def is_backlog(path: str) -> bool:
    """Is this list of phases a JSON backlog instead of Markdown?"""
    return path.endswith(".json")


def subtask_folder(number: str) -> str:
    """The folder of a subtask: its id without dots."""
    return number.replace(".", "")


def phase_path(path: str, number: str) -> str:
    """A path of one phase: `{work}` and `{phase}` substituted."""
    return path.replace("{work}", subtask_folder(number)).replace("{phase}", number)


def headings(text: str) -> tuple[Heading, ...]:
    return tuple(
        Heading(len(found[1]), found[2], number) for number, line in prose(text) if (found := _HEADING.match(line))
    )


def section(text: str, title: str) -> str | None:
    """The section whose heading is `title` or starts with it and a colon, or None."""
    for place, heading in enumerate(found := headings(text)):
        if heading.title == title or heading.title.startswith(title + ":"):
            return _cut(text, found, place)
    return None


def phases(text: str) -> tuple[Phase, ...]:
    found = headings(text)
    return tuple(
        Phase(named[1], named[2], _cut(text, found, place), heading.line + 1)
        for place, heading in enumerate(found)
        if heading.level == 2 and (named := _PHASE.match(heading.title))
    )


def untick_boxes(text: str) -> str:
    """The text with every box empty: a ticked box is progress, not a change of the task."""
    return _BOX.sub(r"\1[ ]", text)


def tick_boxes(text: str, by: str) -> str:
    """The text with every box ticked that is ticked on the same line of `by`."""
    done = {untick_boxes(line).strip() for line in by.splitlines() if _BOX.match(line)}

    def tick(found: re.Match[str]) -> str:
        return f"{found[1]}[x]{found[2]}" if found[0].strip() in done else found[0]

    return _EMPTY.sub(tick, text)


def questions(text: str) -> tuple[str, ...]:
    """The open questions an agent left in its artifact, in order."""
    return tuple(found[1].strip() for found in _QUESTION.finditer(text))


def insert_answers(text: str, answers: tuple[str | None, ...]) -> str:
    """The text with each answer in place of its marker; markers without an answer stay."""
    left = iter(answers)

    def put(found: re.Match[str]) -> str:
        answer = next(left, None)
        return found[0] if answer is None else answer

    return _QUESTION.sub(put, text)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside code fences, each with its number (from 0)."""
    fence = ""
    for number, line in enumerate(text.splitlines()):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
        else:
            yield number, line


def _cut(text: str, found: tuple[Heading, ...], place: int) -> str:
    lines = text.splitlines(keepends=True)
    level = found[place].level
    end = next((h.line for h in found[place + 1 :] if h.level <= level), len(lines))
    return "".join(lines[found[place].line : end])
