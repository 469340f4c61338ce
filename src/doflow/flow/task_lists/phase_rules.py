"""What a phase is: five rules, of which the first that gives any phase holds.

1. headings `Phase N`, of the highest level that has any with a box
2. numbered `##` headings
3. boxes with a whole number, if there are boxes with sub-numbers
4. `##` headings
5. the whole list
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from doflow.flow.task_lists.lines import Block, Box, Heading

#: the word "phase" in the languages that lists are written in; the number beside it makes a heading a phase
_WORDS = (
    "phase|fase|faza|fáza|fáze|fázis|faasi|fas|vaihe|etap|etapa|étape|etape|tappa|etapp|aşama|asama|tahap|fasa|giai đoạn"
    "|этап|фаза|стадия|етап|φάση|مرحلة|المرحلة|مرحله|שלב|चरण|ระยะ|ขั้นตอน|ระยะที่"
    "|阶段|階段|フェーズ|フェイズ|段階|ステージ|단계|페이즈"
)
#: `3`, `3.1`, `2b`; a letter, a Roman number or a word only before a separator ("Phase A: …", not "Phase A lot")
_NUMBER = (
    r"\d+[a-z]?(?![a-z])(?:\.\d+[a-z]?(?![a-z]))*"
    r"|(?:[a-z]|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten)(?=\s*(?:[:：.)\]|(（*—–-]|$))"
)
_BEFORE = r"[\W_]*(?:\[x\][\W_]*)?"
_PHASE = re.compile(
    rf"{_BEFORE}(?:\d+[.)]\s+)?(?:{_WORDS})\s*[#№_-]?\s*(?P<number>{_NUMBER})"
    rf"|{_BEFORE}第?\s*(?P<before>\d+)\s*(?:阶段|階段|フェーズ|フェイズ|段階|단계|페이즈)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(rf"{_BEFORE}(?P<number>\d+(?:\.\d+)*)\ufe0f?\u20e3?(?=[.):：、．*_\]\s]|$)", re.IGNORECASE)
_SEPARATORS = " \t\u3000\ufe0f\u20e3.:：、．)]*_|—–-"
_LONGEST = 300  # characters of a heading in which its number is looked for


@dataclass(slots=True)
class Section:
    """A phase in the making: the heading or box that opens it, and its boxes."""

    line: int
    number: str
    title: str
    boxes: list[Box] = field(default_factory=list)


@dataclass(slots=True)
class Stray:
    """Boxes outside the phases, below one heading; `above` is the place of the phase before them, or -1."""

    heading: Heading | None
    above: int
    boxes: list[Box] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Division:
    """A list divided by one rule. `empty`: what is a phase by that rule but owns no box."""

    rule: int
    sections: tuple[Section, ...]
    strays: tuple[Stray, ...] = ()
    empty: tuple[Section, ...] = ()


def divide(blocks: Sequence[Block], whole_numbers: Mapping[int, str], has_sub_numbers: bool) -> Division:
    """The phases of a list. `whole_numbers`: the lines of the boxes that are numbered `1.`, with their numbers."""
    parts = [block for block in blocks if isinstance(block, Heading | Box)]
    headings = [part for part in parts if isinstance(part, Heading)]
    candidates: list[tuple[int, int, list[Section]]] = []
    for level in range(1, 7):
        candidates.append((1, level, [_phase(one) for one in headings if one.level == level and is_phase(one)]))
    second = [one for one in headings if one.level == 2]
    candidates.append((2, 2, [_numbered(one, found) for one in second if (found := _NUMBERED.match(one.title[:_LONGEST]))]))
    if has_sub_numbers:
        boxes = [part for part in parts if isinstance(part, Box) and part.line in whole_numbers]
        candidates.append((3, 2, [Section(box.line, whole_numbers[box.line], "") for box in boxes]))
    candidates.append((4, 2, [Section(one.line, "", one.title) for one in second]))
    for rule, level, sections in candidates:
        found = _cut(parts, rule, level, sections)
        if found.sections:
            return found
    title = next((one.title for one in headings if one.level == 1), "")
    every = [part for part in parts if isinstance(part, Box)]
    return Division(5, (Section(every[0].line, "", title, every),) if every else ())


def is_phase(heading: Heading) -> bool:
    """Is this a heading `Phase N`, in any language?"""
    return _PHASE.match(heading.title[:_LONGEST]) is not None


def _phase(heading: Heading) -> Section:
    found = _PHASE.match(heading.title[:_LONGEST])
    assert found is not None
    return _section(heading, found["number"] or found["before"], found.end())


def _numbered(heading: Heading, found: re.Match[str]) -> Section:
    return _section(heading, found["number"], found.end())


def _section(heading: Heading, number: str, end: int) -> Section:
    return Section(heading.line, number, heading.title[end:].lstrip(_SEPARATORS).rstrip("*_ "))


def _cut(parts: Sequence[Heading | Box], rule: int, level: int, sections: Sequence[Section]) -> Division:
    """Give every box to the section it is in; a heading of the sections' level or above ends one."""
    openers = {section.line: section for section in sections}
    current: Section | None = None
    stray = Stray(None, -1)
    owners: list[Section] = []
    strays: list[Stray] = []
    for part in parts if openers else ():
        if part.line in openers:
            current = openers[part.line]
        elif isinstance(part, Heading):
            if part.level <= level:
                current = None
            stray = Stray(part, len(owners) - 1)
        if isinstance(part, Box):
            owner: Section | Stray = current or stray
            if not owner.boxes:
                owners.append(current) if current else strays.append(stray)
            owner.boxes.append(part)
    owned = {section.line for section in owners}
    empty = tuple(section for section in sections if section.line not in owned)
    return Division(rule, tuple(owners), tuple(strays), empty)
