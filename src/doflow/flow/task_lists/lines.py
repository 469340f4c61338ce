"""The lines of a Markdown file that matter to a task list: headings, boxes, and the text below a box.

What is in a code fence or an HTML comment is neither heading nor box. Line numbers count from 1; `\\n`, `\\r\\n` and `\\r`
end a line, nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINE_END = re.compile(r"\r\n?|\n")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_BOX = re.compile(
    r"([ \t]*)(?:[-*+•]|\d{1,9}[.)])[ \t]+"
    r"\[([ \t\xa0]{0,3}[xX]?[ \t\xa0]{0,3}|[^\w\s\[\]]\ufe0f?)\](?![(:])"
    r"(\\?\*(?!\*))?"
)
_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+•]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`]*$)|~{3,})")
_INDENT = re.compile(r"[ \t]*")
_COMMENT, _COMMENT_END = "<!--", "-->"
_TICKS = frozenset("xX✓✔✅☑√")


@dataclass(frozen=True, slots=True)
class Heading:
    line: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Box:
    """A checkbox. `body`: the text after it; `mark_start` and `mark_end`: the columns between its brackets."""

    line: int
    indent: int
    done: bool
    optional: bool
    body: str
    mark_start: int
    mark_end: int


@dataclass(frozen=True, slots=True)
class Text:
    """Any other line that is not blank. `is_code`: in a code fence."""

    line: int
    indent: int
    text: str
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Unclosed:
    """A code fence or an HTML comment (`what`) that is never closed."""

    line: int
    what: str


Block = Heading | Box | Text | Unclosed


def scan(text: str) -> Iterator[Block]:
    """The blocks of a text in order."""
    lines = LINE_END.split(text.removeprefix("\ufeff"))
    last_comment_end = next((n for n in range(len(lines), 0, -1) if _COMMENT_END in lines[n - 1]), 0)
    fence, fence_line, in_comment = "", 0, False
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if not bare:
            continue
        if in_comment:
            in_comment = _COMMENT_END not in bare
        elif fence:
            if bare[0] in "`~>" and _closes(bare, fence):
                fence = ""
            else:
                yield Text(number, _indent(line), line.rstrip(), is_code=True)
        elif ("```" in bare or "~~~" in bare) and (opened := _FENCE.match(line)):
            fence, fence_line = opened[1], number
        elif bare.startswith(_COMMENT):
            if number > last_comment_end:
                yield Unclosed(number, "HTML comment")
            else:
                in_comment = _COMMENT_END not in bare
        else:
            yield _parse_heading(line, number) or parse_box(line, number) or Text(number, _indent(line), bare)
    if fence:
        yield Unclosed(fence_line, "code fence")


def parse_box(line: str, number: int) -> Box | None:
    found = _BOX.match(line)
    if found is None:
        return None
    done = any(mark in _TICKS for mark in found[2])
    body = line[found.end() :].strip()
    return Box(number, _width(found[1]), done, found[3] is not None, body, found.start(2), found.end(2))


def _parse_heading(line: str, number: int) -> Heading | None:
    found = _HEADING.match(line)
    if found is None:
        return None
    title = line[found.end() :].strip()
    bare = title.rstrip("#")  # `## Title ##`
    return Heading(number, len(found[1]), bare.rstrip() if not bare or bare[-1] in " \t" else title)


def _closes(bare: str, fence: str) -> bool:
    bare = bare.lstrip("> \t")
    return bare.startswith(fence) and not bare.strip(fence[0])


def _indent(line: str) -> int:
    found = _INDENT.match(line)
    return _width(found[0]) if found else 0


def _width(blanks: str) -> int:
    return len(blanks) + 3 * blanks.count("\t")
