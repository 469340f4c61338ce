"""Markdown as far as flows need it: headings, sections, phases, boxes, questions, marker lines.

Code fences are respected: a heading or a box inside one is text, not structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doflow.util.records import dataclass, regex

_HEADING = regex(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_PHASE = regex(r"^Phase (\d+):[ \t]*(.*)$")
_FENCE = regex(r"^ {0,3}(`{3,}|~{3,})")
_BOX = regex(r"^([ \t]*[-*+][ \t]+)\[[xX]\]", re.M)
_EMPTY = regex(r"^([ \t]*[-*+][ \t]+)\[ \](.*)$", re.M)
_QUESTION = regex(r"\[NEEDS CLARIFICATION:[ \t]*((?:[^\[\]]|\[[^\[\]]*\])*)\]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its level, its title, the number of its line (from 0)."""

    level: int
    title: str
    line: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One `## Phase N: title` section; `text` holds the heading too."""

    number: str
    title: str
    text: str
    line: int


def is_backlog(path: str) -> bool:
    """Is this list of phases no Markdown, but a backlog?"""
    return path.endswith(".json")


def work(number: str) -> str:
    """The folder of a subtask: its id without dots."""
    return number.replace(".", "")


def of_phase(said: str, number: str) -> str:
    """A path for one phase: `{work}/notes.md` is there for it alone."""
    return said.replace("{work}", work(number)).replace("{phase}", number)


def headings(text: str) -> tuple[Heading, ...]:
    return tuple(
        Heading(len(found[1]), found[2], number) for number, line in prose(text) if (found := _HEADING.match(line))
    )


def section(text: str, title: str) -> str | None:
    """The part below the heading that equals `title` or begins with it and a colon, or None."""
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


def untick(text: str) -> str:
    """The same text with every box empty: a ticked box is progress, not a change of the task."""
    return _BOX.sub(r"\1[ ]", text)


def ticked(text: str, by: str) -> str:
    """The text with every box ticked that is ticked in another one, on a line that says the same."""
    done = {untick(line).strip() for line in by.splitlines() if _BOX.match(line)}

    def tick(found: re.Match[str]) -> str:
        return f"{found[1]}[x]{found[2]}" if found[0].strip() in done else found[0]

    return _EMPTY.sub(tick, text)


def questions(text: str) -> tuple[str, ...]:
    """The open questions an agent left in its artifact, in order."""
    return tuple(found[1].strip() for found in _QUESTION.finditer(text))


def answered(text: str, answers: tuple[str | None, ...]) -> str:
    """Put each answer in the place of its marker; markers without an answer (None, or none left) stay."""
    left = iter(answers)

    def put(found: re.Match[str]) -> str:
        answer = next(left, None)
        return found[0] if answer is None else answer

    return _QUESTION.sub(put, text)


def marker(text: str, wanted: tuple[str, ...]) -> str:
    """The wanted marker that stands on the last line holding one; brackets are optional."""
    for line in reversed(text.splitlines()):
        bare = line.strip()
        for want in wanted:
            if bare in (want, f"[{want}]"):
                return want
    return ""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines that stand in no code fence, each with its number (from 0)."""
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
