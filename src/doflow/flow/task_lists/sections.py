"""The text of each phase of a task list: what an agent is given, and what the phase's key is made of."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from doflow.flow import markdown
from doflow.flow.task_lists.lines import LINE_END, Box, Heading, scan
from doflow.flow.task_lists.model import Phase, Task
from doflow.flow.task_lists.reader import parse_task_list

_UNSAFE = re.compile(r"[^\w.-]+")
_TITLE_LEVEL = 2  # a heading of this level ends a phase that a box opens


def phase_sections(text: str) -> tuple[markdown.Phase, ...]:
    """The phases of a list with their texts and unique numbers; () if the list is not divided.

    Phases written `## Phase N: title` are cut exactly as `markdown.phases` cuts them, if that leaves out no task.
    """
    listed, strict = parse_task_list(text).phases, markdown.phases(text)
    if strict and (not listed or _are_equal(listed, strict)):
        return strict
    levels = {block.line: block.level for block in scan(text) if isinstance(block, Heading)}
    headings = list(levels)
    if len(listed) == 1 and listed[0].line not in levels and not listed[0].tasks[0].head:
        return ()
    lines = split_lines(text)
    starts = [min(phase.line, *(task.line for task in phase.tasks)) for phase in listed] + [len(lines) + 1]
    counts: Counter[str] = Counter()
    sections = []
    for place, phase in enumerate(listed):
        number = _UNSAFE.sub("-", phase.number).strip("-.") or str(place + 1)
        counts[number] += 1
        number += f"-{counts[number]}" if counts[number] > 1 else ""
        last = max(task.line for task in phase.tasks)
        between = headings[bisect_right(headings, last) : bisect_left(headings, starts[place + 1])]
        level = levels.get(phase.line, _TITLE_LEVEL)
        end = next((line for line in between if levels[line] <= level), starts[place + 1])
        sections.append(markdown.Phase(number, phase.title, "".join(lines[starts[place] - 1 : end - 1]), starts[place]))
    return tuple(sections)


def phase_parts(phase: markdown.Phase) -> tuple[markdown.Phase, ...]:
    """A phase cut at its sub-headings, else at the boxes that head others; whole if it has no such places."""
    blocks = list(scan(phase.text))
    boxes = [block for block in blocks if isinstance(block, Box)]
    headings = [block for block in blocks if isinstance(block, Heading) and block.line > 1]
    is_head = bool(boxes) and all(box.indent > boxes[0].indent for box in boxes[1:])
    inner = boxes[1:] if is_head else boxes
    for places in (*_by_level(headings), _heading_boxes(inner)):
        starts = _starts(places, inner)
        if len(starts) > 1:
            return tuple(_cut_parts(phase, starts))
    return (phase,)


def has_more_tasks(text: str, most: int) -> bool:
    """Does a section have more tasks than this?"""
    return text.count("[") > most and len(parse_task_list(text).tasks) > most


def part_prefix(number: str) -> str:
    """How the numbers of the parts of a phase begin."""
    return f"{number}-part"


def _by_level(headings: Sequence[Heading]) -> list[dict[int, str]]:
    """The lines and titles of the headings, one level after the other, the highest first."""
    levels = sorted({heading.level for heading in headings})
    return [{heading.line: heading.title for heading in headings if heading.level <= level} for level in levels]


def _heading_boxes(boxes: Sequence[Box]) -> dict[int, str]:
    """The lines and texts of the outermost boxes that have boxes below them."""
    outermost = min((box.indent for box in boxes), default=0)
    return {box.line: box.body for box, below in pairwise(boxes) if box.indent == outermost < below.indent}


def _starts(places: dict[int, str], boxes: Sequence[Box]) -> dict[int, str]:
    """The lines where parts start, with their titles: every part owns a box."""
    order = sorted(places)
    owners = dict.fromkeys(order[place - 1] if (place := bisect_right(order, box.line)) else 1 for box in boxes)
    return {at if number else 1: places.get(at, "") for number, at in enumerate(owners)}


def _cut_parts(phase: markdown.Phase, starts: dict[int, str]) -> Iterator[markdown.Phase]:
    lines = split_lines(phase.text)
    ends = [*(start - 1 for start in list(starts)[1:]), len(lines)]
    for place, ((start, title), end) in enumerate(zip(starts.items(), ends, strict=True), 1):
        name = f"{phase.title}, part {place}" + (f": {title}" if title else "")
        text = "".join(lines[start - 1 : end])
        number = f"{part_prefix(phase.number)}{place}"
        yield markdown.Phase(number, name, text, phase.line + start - 1, phase.number)


def is_ticked(text: str, optional: bool = False) -> bool:
    """Is every task of this section done? Optional ones are needed if `optional`; without a task nothing is."""
    listed = parse_task_list(text)
    if optional and any(task.optional and not task.done for task in listed.tasks):
        return False
    return bool(listed.phases) and all(phase.done for phase in listed.phases)


def without_optional(text: str) -> str:
    """The section without its optional tasks and what is below them."""
    lines = split_lines(text)
    gone: set[int] = set()
    for task in parse_task_list(text).tasks:
        if task.optional and task.line not in gone:
            gone.update(range(task.line, task_end(lines, task.line) + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in gone)


def task_section(text: str, task: Task) -> markdown.Phase:
    """One task as a phase of its own: its box and what is below it."""
    lines = split_lines(text)
    number = "task-" + _UNSAFE.sub("-", task.id)
    return markdown.Phase(number, task.text, "".join(lines[task.line - 1 : task_end(lines, task.line)]), task.line)


def task_end(lines: Sequence[str], first: int) -> int:
    """The last line of a task: the lines below its box that are indented deeper belong to it."""
    indent, last = _indent(lines[first - 1]), first
    for number in range(first + 1, len(lines) + 1):
        line = lines[number - 1]
        if line.strip() and _indent(line) <= indent:
            break
        last = number if line.strip() else last
    return last


def _indent(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())


def _are_equal(listed: Sequence[Phase], strict: Sequence[markdown.Phase]) -> bool:
    """Are these the same phases, with every task in its section and no number twice?"""
    if [phase.line for phase in listed] != [section.line for section in strict]:
        return False
    return len({section.number for section in strict}) == len(strict) and all(
        section.line < task.line < section.line + section.text.count("\n") + 1
        for phase, section in zip(listed, strict, strict=True)
        for task in phase.tasks
    )


def split_lines(text: str) -> list[str]:
    """The lines of a text with their ends."""
    ends = [found.end() for found in LINE_END.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
