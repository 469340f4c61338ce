"""What a phase is: five rules, of which the first that gives any phase holds.

1. headings `Phase N`, of the highest level that has any with a box
2. numbered `##` headings
3. boxes with a whole number, if there are boxes with sub-numbers
4. `##` headings
5. the whole list
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from doflow.flow.task_lists.lines import Block, Box, Heading

#: the word "phase" in the languages that lists are written in; the number beside it makes a heading a phase
_WORDS = (
    "phase|fase|faza|fáza|fáze|fázis|faasi|fas|vaihe|etap|etapa|étape|etape|tappa|etapp|aşama|asama|tahap|fasa|giai đoạn"
    "|этап|фаза|стадия|етап|φάση|مرحلة|المرحلة|مرحله|שלב|चरण|ระยะ|ขั้นตอน|ระยะที่"
    "|阶段|階段|フェーズ|フェイズ|段階|ステージ|단계|페이즈"
)
_DIGITS = r"\d+[a-z]?(?![a-z])(?:\.\d+[a-z]?(?![a-z]))*"  # `3`, `3.1`, `2b`
#: a letter, a Roman number or a word only before a separator ("Phase A: …", not "Phase A lot")
_LETTERS = r"(?:[a-z]|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten)(?=\s*(?:[:：.)\]|(（*—–-]|$))"
_BEFORE = r"[\W_]*(?:\[x\][\W_]*)?"
_PHASE = re.compile(
    rf"{_BEFORE}(?:{_WORDS})(?:\s*[#№_-]?\s*({_DIGITS})|\s+({_LETTERS}))"
    rf"|{_BEFORE}第?\s*(\d+)\s*(?:阶段|階段|フェーズ|フェイズ|段階|단계|페이즈)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    rf"{_BEFORE}(\d+(?:\.\d+)*(?:[a-z](?=[.):]))?)\ufe0f?\u20e3?(?=[.):：、．*_\]\s]|$)", re.IGNORECASE
)
_SEPARATORS = " \t\u3000\ufe0f\u20e3.:：、．)]*_|—–-"
_LONGEST = 300  # characters of a heading in which its number is looked for


@dataclass(slots=True)
class Section:
    """A phase in the making: the heading (or box: level 0) that opens it, and its boxes."""

    line: int
    level: int
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
    boxes = [part for part in parts if isinstance(part, Box)]
    second = [heading for heading in headings if heading.level == 2]
    heads = [box for box in boxes if box.line in whole_numbers] if has_sub_numbers else []
    phases = _sections(_PHASE, headings)
    rules: list[tuple[int, int, list[Section]]] = [
        *((1, level, [section for section in phases if section.level == level]) for level in range(1, 7)),
        (2, 2, _sections(_NUMBERED, second)),
        (3, 2, [Section(box.line, 0, whole_numbers[box.line], "") for box in heads]),
        (4, 2, [Section(heading.line, 2, "", heading.title) for heading in second]),
    ]
    for rule, level, sections in rules:
        division = _cut(parts, rule, level, sections)
        if division.sections:
            return division
    title = next((heading.title for heading in headings if heading.level == 1), "")
    return Division(5, (Section(boxes[0].line, 0, "", title, boxes),) if boxes else ())


def _sections(pattern: re.Pattern[str], headings: Iterable[Heading]) -> list[Section]:
    """The headings that match, each with its number and what follows it."""
    sections = []
    for heading in headings:
        if found := pattern.match(heading.title[:_LONGEST]):
            title = heading.title[found.end() :].lstrip(_SEPARATORS).rstrip("*_ ")
            number = next(group for group in found.groups() if group)
            sections.append(Section(heading.line, heading.level, number, title))
    return sections


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
