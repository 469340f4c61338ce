"""Markdown for flows: headings, sections, phases, checkboxes, questions, and the markers at the end of an answer.

Headings, checkboxes and markers inside code fences are ignored. A marker is the line by which an agent says how its work
ended, the last of its answer: one reading for routes, verdicts, results and errors. Quotations and HTML comments do not
count; bold, backticks, bullets, brackets and blanks around a marker do not matter.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_PHASE = re.compile(r"^Phase (\d+):[ \t]*(.*)$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_BULLET = r"^([ \t]*(?:[-*+•]|\d{1,9}[.)])[ \t]+)"
_BOX = re.compile(_BULLET + r"\[[xX✓✔✅☑√~-]\]", re.M)
_ANY_BOX = re.compile(_BULLET + r"\[([ xX✓✔✅☑√~-])\](.*)$", re.M)
_OPEN = frozenset(" ~-")
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
            return _cut(text.splitlines(keepends=True), found, place)
    return None


def phases(text: str) -> tuple[Phase, ...]:
    found, lines = headings(text), text.splitlines(keepends=True)
    return tuple(
        Phase(named[1], named[2], _cut(lines, found, place), heading.line + 1)
        for place, heading in enumerate(found)
        if heading.level == 2 and (named := _PHASE.match(heading.title))
    )


def untick_boxes(text: str) -> str:
    """The text with every box empty: a ticked box is progress, not a change of the task."""
    return _BOX.sub(r"\1[ ]", text)


def tick_boxes(text: str, by: str) -> str:
    """The text with every box ticked that is ticked in `by`: a tick on either side wins. Boxes are matched by their line;
    of equal lines the first is the first, the second the second."""
    ticks: defaultdict[str, deque[bool]] = defaultdict(deque)
    for found in _ANY_BOX.finditer(by):
        ticks[found[3].strip()].append(found[2] not in _OPEN)

    def tick(found: re.Match[str]) -> str:
        others = ticks[found[3].strip()]
        is_ticked = bool(others) and others.popleft()
        return f"{found[1]}[x]{found[3]}" if is_ticked and found[2] in _OPEN else found[0]

    return _ANY_BOX.sub(tick, text)


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


def _cut(lines: Sequence[str], found: Sequence[Heading], place: int) -> str:
    level = found[place].level
    after = (found[later] for later in range(place + 1, len(found)))
    end = next((heading.line for heading in after if heading.level <= level), len(lines))
    return "".join(lines[found[place].line : end])


_MARKER_FENCE = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
_QUOTATION = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)*>")
#: a code span, or the start of a comment outside of one
_SPAN_OR_COMMENT = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|(<!--)")
_MARKER_BULLET = re.compile(r"^(?:[-+#\s]+|\d+[.)]\s)+")
_EMPHASIS = re.compile(r"[*`]|(?<!\w)_+|_+(?!\w)")
_LEADING = re.compile(r"^\W+")
_ERROR = "[ERROR:"


def read_markers(text: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """The marker of an answer. () = its last line is none of the wanted ones; more than one = they disagree: never a pick."""
    names = {_bare(marker): marker for marker in wanted}
    lines = [bare for line in answer_lines(text) if (bare := _bare(line))]
    if not lines or lines[-1] not in names:
        return ()
    return tuple(dict.fromkeys(names[line] for line in reversed(lines) if line in names))


def reported_error(text: str) -> str:
    """What an agent says in a line `[ERROR: …]`; '' = there is none."""
    for line in answer_lines(text):
        if _undressed(line).startswith(_ERROR):
            return line.partition(_ERROR)[2].strip("*`_ \t").removesuffix("]").strip() or "no reason given"
    return ""


def with_plain_end(text: str, wanted: Iterable[str]) -> str:
    """The text with its marker once more as plain last line, if it has markup around it: programs read the line as it is."""
    found = read_markers(text, wanted)
    return f"{text.rstrip()}\n\n{found[0]}\n" if len(found) == 1 and last_line(text) != found[0] else text


def last_line(text: str) -> str:
    """The last line of a command's output, which is not Markdown."""
    return text.rstrip().rpartition("\n")[2]


def answer_lines(text: str) -> Iterator[str]:
    """The lines outside code fences, quotations and comments."""
    fence, comment = "", False
    for line in text.splitlines():
        found = None if comment else _MARKER_FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if found:
            fence = found[1]
            continue
        left, comment = _without_comments(line, comment)
        if not _QUOTATION.match(left):
            yield left


def _without_comments(line: str, inside: bool) -> tuple[str, bool]:
    """What is left of a line, and whether a comment is still open at its end."""
    left = ""
    while True:
        if inside:
            _, end, line = line.partition("-->")
            if not end:
                return left, True
        start = next((found.start() for found in _SPAN_OR_COMMENT.finditer(line) if found[2]), -1)
        if start < 0:
            return left + line, False
        left, line, inside = left + line[:start], line[start + 4 :], True


def _undressed(line: str) -> str:
    """The line without bullets and emphasis, with single blanks between its words."""
    return " ".join(_MARKER_BULLET.sub("", _EMPHASIS.sub("", line)).split())


def _bare(line: str) -> str:
    """The same without brackets, other signs before it and a full stop after it."""
    bare = _LEADING.sub("", _undressed(line)).rstrip("[](){} .!")
    return re.sub(r"\s*:\s*", ": ", bare, count=1)
