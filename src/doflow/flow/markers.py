"""Markers: the lines by which an agent says how its work ended. One reading for routes, verdicts, results and errors.

The marker is the last line of the answer. Lines in code fences, quotations and HTML comments do not count; bold, backticks,
bullets, brackets and blanks around a marker do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_FENCE = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
_QUOTATION = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)*>")
#: a code span, or the start of a comment outside of one
_SPAN_OR_COMMENT = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|(<!--)")
_BULLET = re.compile(r"^(?:[-+#\s]+|\d+[.)]\s)+")
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
        found = None if comment else _FENCE.match(line)
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
    return " ".join(_BULLET.sub("", _EMPHASIS.sub("", line)).split())


def _bare(line: str) -> str:
    """The same without brackets, other signs before it and a full stop after it."""
    bare = _LEADING.sub("", _undressed(line)).rstrip("[](){} .!")
    return re.sub(r"\s*:\s*", ": ", bare, count=1)
