"""A new version of a task list, made from an agent's answer: what is ticked stays as it is, everything else is open."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from doflow.flow.task_lists.ids import NamedBox, name_boxes
from doflow.flow.task_lists.lines import LINE_END, Box, scan
from doflow.flow.task_lists.reader import parse_task_list
from doflow.flow.task_lists.sections import split_lines, task_end

_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.M | re.S)
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A box of a list: its own lines (without the boxes below it), and its phase as number and title."""

    named: NamedBox
    start: int
    end: int
    phase: tuple[str, str]

    @property
    def name(self) -> str:
        """By which a task is found in another version of its list: its id, else its text."""
        return self.named.id or self.named.text

    @property
    def label(self) -> str:
        return self.named.id or f"“{self.named.text[:60]}”"


def revise(old: str, answer: str) -> tuple[str, tuple[str, ...]]:
    """The new list in an answer, with the ticked tasks of the old one as they were; and why it can't be used.

    Tasks are found by their id, those without one by their text. A ticked task that the answer rewords gets its old lines
    back, a box that only the answer ticks is open; one that is missing, renumbered or moved is a reason to refuse it.
    """
    new = _fitted(old, answer)
    was, now = _entries(old), _entries(new)
    if not now:
        reason = parse_task_list(new).problems[0].message if new.strip() else "it is empty"
        return new, (f"not a task list: {reason}",)
    kept: dict[int, _Entry] = {}
    problems = []
    known = {entry.named.id for entry in was}
    renamed = {entry.named.text: entry for entry in now if entry.named.id not in known}
    names: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in now:
        names[entry.name].append(entry)
    for entry in (entry for entry in was if entry.named.box.done):
        found = _take(entry, names[entry.name])
        if found is not None:
            kept[found.start] = entry
        if problem := _problem(entry, found, renamed.get(entry.named.text)):
            problems.append(problem)
    places = {entry.start: place for place, entry in kept.items()}
    for first, second in pairwise(sorted(kept.values(), key=lambda entry: entry.start)):
        if places[second.start] < places[first.start]:
            problems.append(f"the ticked tasks {first.label} and {second.label} have changed places")
    return (new, tuple(problems)) if problems else (_kept(old, new, now, kept), ())


def _fitted(old: str, answer: str) -> str:
    """The list in an answer, with the line ends of the old one. An answer may have put it into a code fence."""
    text = LINE_END.sub("\n", answer.removeprefix(_BOM))
    fenced = [found[2] for found in _FENCED.finditer(text)]
    if fenced and not parse_task_list(text).phases:
        text = max(fenced, key=len)
    text = text.strip("\n") + ("\n" if LINE_END.search(old[-1:]) or not old else "")
    text = text.replace("\n", "\r\n") if "\r\n" in old else text
    return _BOM + text if old.startswith(_BOM) else text


def _entries(text: str) -> list[_Entry]:
    boxes = [block for block in scan(text) if isinstance(block, Box)]
    phases = {task.line: (phase.number, phase.title) for phase in parse_task_list(text).phases for task in phase.tasks}
    lines = split_lines(text)
    starts = [box.line for box in boxes[1:]] + [len(lines) + 1]
    found = []
    for named, below in zip(name_boxes(boxes), starts, strict=False):
        line = named.box.line
        end = min(task_end(lines, line), below - 1)
        while end > line and not lines[end - 1].strip():
            end -= 1
        found.append(_Entry(named, line, end, phases.get(line, ("", ""))))
    return found


def _take(entry: _Entry, same: list[_Entry]) -> _Entry | None:
    """The same task in the other list; of several the one with the same text, or in the same phase."""
    if not same:
        return None
    best = min(same, key=lambda other: (other.named.text != entry.named.text, other.phase != entry.phase))
    same.remove(best)
    return best


def _problem(entry: _Entry, found: _Entry | None, renamed: _Entry | None) -> str:
    if renamed is not None and (found is None or found.named.text != entry.named.text):
        return f"the ticked task {entry.label} has another ID: {renamed.label}"
    if found is None:
        return f"the ticked task {entry.label} is missing"
    is_moved = all(one != other for one, other in zip(entry.phase, found.phase, strict=True))
    return f"the ticked task {entry.label} is in another phase" if is_moved else ""


def _kept(old: str, new: str, now: Sequence[_Entry], kept: dict[int, _Entry]) -> str:
    before, lines = split_lines(old), split_lines(new)
    for entry in reversed(now):
        mine = kept.get(entry.start)
        if mine is not None:
            lines[entry.start - 1 : entry.end] = _joinable(before[mine.start - 1 : mine.end], lines[entry.end - 1])
        elif entry.named.box.done:
            line, box = lines[entry.start - 1], entry.named.box
            shift = len(_BOM) if line.startswith(_BOM) else 0
            lines[entry.start - 1] = f"{line[: box.mark_start + shift]} {line[box.mark_end + shift :]}"
    return "".join(lines)


def _joinable(own: Sequence[str], last: str) -> Iterator[str]:
    """A task's lines, the last of them with the line end of the line that it replaces."""
    yield from own[:-1]
    ended = LINE_END.search(last)
    yield LINE_END.sub("", own[-1]) + (ended[0] if ended else "")
