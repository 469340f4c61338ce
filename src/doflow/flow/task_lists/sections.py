"""The text of each phase of a task list: what an agent is given, and what the phase's key is made of."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence

from doflow.flow import markdown
from doflow.flow.task_lists.lines import LINE_END, Heading, scan
from doflow.flow.task_lists.model import Phase
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
    lines = _lines(text)
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


def is_ticked(text: str) -> bool:
    """Is every task of this section done? Optional ones are not needed; without a task nothing is."""
    phases = parse_task_list(text).phases
    return bool(phases) and all(phase.done for phase in phases)


def _are_equal(listed: Sequence[Phase], strict: Sequence[markdown.Phase]) -> bool:
    """Are these the same phases, with every task in its section and no number twice?"""
    if [phase.line for phase in listed] != [section.line for section in strict]:
        return False
    return len({section.number for section in strict}) == len(strict) and all(
        section.line < task.line < section.line + section.text.count("\n") + 1
        for phase, section in zip(listed, strict, strict=True)
        for task in phase.tasks
    )


def _lines(text: str) -> list[str]:
    ends = [found.end() for found in LINE_END.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
