"""Reading a task list of any format, and ticking a box in it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from doflow.flow.task_lists import details, phase_rules
from doflow.flow.task_lists.ids import IdIndex, NamedBox, index_ids, name_boxes
from doflow.flow.task_lists.lines import LINE_END, Block, Box, Heading, Text, Unclosed, parse_box, scan
from doflow.flow.task_lists.model import Phase, Task, TaskList
from doflow.flow.task_lists.phase_rules import Division, Stray
from doflow.util.errors import Problem

_BMAD_HEADING = re.compile(r"tasks?\s{0,3}/\s{0,3}sub-?tasks?", re.IGNORECASE)
_NO_EMPHASIS = str.maketrans("", "", "*_~")
_ID_WITHOUT_BOX = re.compile(r"(?:[-*+]\s{1,4}|\|\s{0,9})?[*_`\[]{0,4}T-?\d{2,5}\b")


def parse_task_list(text: str) -> TaskList:
    """The task list in a text; without a box there are no phases, and the first problem says why. Never raises."""
    blocks = list(scan(text))
    named = name_boxes(block for block in blocks if isinstance(block, Box))
    if not named:
        return TaskList("", (), (_problem(*_no_box(blocks)),))
    by_line = {one.box.line: one for one in named}
    whole = {one.box.line: one.id for one in named if one.is_whole_number}
    division = phase_rules.divide(blocks, whole, any(one.kind == "N" and "." in one.id for one in named))
    problems = [*_unclosed(blocks), *_empty(division)]
    groups = [[by_line[box.line] for box in section.boxes] for section in division.sections]
    problems += _take_strays(division, groups, by_line)
    phases = _phases(division, groups, _notes(blocks), problems)
    problems += _duplicates(phases)
    return TaskList(_style(division, blocks, named), phases, tuple(sorted(problems, key=lambda one: one.line)))


def tick(text: str, task: Task) -> str:
    """The text with the box of a task ticked: nothing else changes. `task` must come from a parse of this text."""
    start, number = len(text) if task.line > 1 else 0, task.line
    for end in islice(LINE_END.finditer(text), max(number - 2, 0), max(number - 1, 0)):
        start = end.end()
    start += text.startswith("\ufeff") and number == 1
    stop = LINE_END.search(text, start)
    box = parse_box(text[start : stop.start() if stop else len(text)], number)
    if box is None or _letters(task.text) not in _letters(box.body):
        raise ValueError(f"line {number} is not the box of task {task.id}")
    return text if box.done else f"{text[: start + box.mark_start]}x{text[start + box.mark_end :]}"


def _letters(text: str) -> str:
    return text.translate(_NO_EMPHASIS)


def _take_strays(
    division: Division, groups: list[list[NamedBox]], by_line: Mapping[int, NamedBox]
) -> Iterator[Problem]:
    """Add boxes outside the phases to the phase above them if they are tasks; checklists are left out.

    Where tasks have ids, a box is a task if it has one too, of any kind, or if it is indented below such a box.
    """
    inside = [one for group in groups for one in group]
    has_ids = sum(1 for one in inside if one.id) * 2 > len(inside)
    before = 1 if division.rule == 3 else 0  # the head of a phase stays its first task
    for stray in division.strays:
        taken: list[NamedBox] = []
        for box in stray.boxes:
            one = by_line[box.line]
            if not has_ids or one.id or (taken and box.indent > taken[-1].box.indent):
                taken.append(one)
        if stray.above < 0:
            groups[0][before:before] = taken
            before += len(taken)
        else:
            groups[stray.above] += taken
        yield from _stray_problems(stray, len(taken), division)


def _stray_problems(stray: Stray, taken: int, division: Division) -> Iterator[Problem]:
    line = stray.boxes[0].line
    place = f"below {_quoted(stray.heading.title)}" if stray.heading else "at the top"
    section = division.sections[max(stray.above, 0)]
    phase = f"phase {section.number}" if section.number else f"{_quoted(section.title)}"
    if taken:
        yield _problem(line, f"{_count(taken, 'task')} {place} in no phase: taken into {phase}")
    if left := len(stray.boxes) - taken:
        box, task = ("box", "a task") if left == 1 else ("boxes", "tasks")
        yield _problem(line, f"{left} {box} {place} in no phase and without an ID: not taken as {task}")


def _phases(
    division: Division,
    groups: Sequence[Sequence[NamedBox]],
    notes: Mapping[int, Sequence[str]],
    problems: list[Problem],
) -> tuple[Phase, ...]:
    """The phases with their tasks; `problems` collects what is wrong with a task."""
    index = index_ids([one for group in groups for one in group])
    phases = []
    for place, (section, group) in enumerate(zip(division.sections, groups, strict=True), 1):
        head = section.line if division.rule == 3 else 0
        optional = _optional_lines(group, head)
        tasks = []
        for one in group:
            line = one.box.line
            task, missing = _task(one, index, notes.get(line, ()), is_optional=line in optional, is_head=line == head)
            tasks.append(task)
            problems += [
                _problem(task.line, f"{task.id} depends on {name}, which is not in this list") for name in missing
            ]
            if not task.text:
                problems.append(_problem(task.line, "a box without a text"))
        title = tasks[0].text if head else section.title
        phases.append(Phase(section.number or str(place), title, section.line, tuple(tasks)))
    return tuple(phases)


def _task(
    one: NamedBox, index: IdIndex, notes: Sequence[str], is_optional: bool, is_head: bool
) -> tuple[Task, list[str]]:
    """The task of a box, and the ids it depends on that the list does not have."""
    box, task_id = one.box, index.by_line[one.box.line]
    text, parallel, story = details.split_marks(one.text)
    known, missing = index.resolve(details.find_depends(text, notes))
    task = Task(
        id=task_id,
        text=text,
        line=box.line,
        done=box.done,
        optional=is_optional,
        parallel=parallel,
        story=story,
        files=details.find_files(text, notes),
        depends=tuple(name for name in dict.fromkeys(known) if name != task_id),
        requirements=details.find_requirements(text, notes),
        notes=tuple(notes),
        head=is_head,
    )
    return task, missing


def _optional_lines(group: Iterable[NamedBox], head: int) -> set[int]:
    """The lines of the optional boxes, and of the boxes below an optional one."""
    lines: set[int] = set()
    above: list[int] = []  # the indentation of the optional boxes that this one is below
    for one in group:
        while above and above[-1] >= one.box.indent:
            above.pop()
        if one.box.optional:
            above.append(-1 if one.box.line == head else one.box.indent)
        if above:
            lines.add(one.box.line)
    return lines


def _notes(blocks: Iterable[Block]) -> dict[int, list[str]]:
    """The lines that are indented below each box, by the line of the box."""
    notes: dict[int, list[str]] = defaultdict(list)
    box: Box | None = None
    for block in blocks:
        if isinstance(block, Box):
            box = block
        elif isinstance(block, Text) and box is not None:
            if block.indent > box.indent:
                notes[box.line].append(block.text)
            elif not block.is_code:
                box = None
        elif isinstance(block, Heading):
            box = None
    return notes


def _style(division: Division, blocks: Iterable[Block], named: Sequence[NamedBox]) -> str:
    """The tool that a list looks made by; a label that nothing else depends on."""
    kinds = Counter(one.kind for one in named)
    kind = kinds.most_common(1)[0][0]
    if kinds["task"] or any(isinstance(block, Heading) and _BMAD_HEADING.search(block.title[:100]) for block in blocks):
        return "bmad"
    if kind == "T":
        return "doflow" if division.rule == 1 and all(one.is_bracketed for one in named) else "spec-kit"
    if division.rule == 2:
        return "openspec"
    if kind == "N":
        is_kiro = division.rule == 3 or any(one.is_whole_number for one in named)
        return "kiro" if is_kiro or division.rule == 5 else "openspec"
    return "spec-kit" if division.rule == 1 else "plain"


def _unclosed(blocks: Iterable[Block]) -> Iterator[Problem]:
    for block in blocks:
        if isinstance(block, Unclosed):
            rest = ": the rest of the file is read as code" if block.what == "code fence" else ""
            yield _problem(block.line, f"{block.what} is never closed{rest}")


def _empty(division: Division) -> Iterator[Problem]:
    for section in division.empty if division.rule == 1 else ():
        yield _problem(section.line, f"phase {section.number} has no box: not taken as a phase")


def _duplicates(phases: Sequence[Phase]) -> Iterator[Problem]:
    numbers: dict[str, int] = {}
    ids: dict[str, tuple[Phase, Task]] = {}
    for phase in phases:
        if phase.number in numbers:
            yield _problem(phase.line, f"duplicate phase number {phase.number} (first on line {numbers[phase.number]})")
        numbers.setdefault(phase.number, phase.line)
        for task in phase.tasks:
            if task.id in ids:
                other, first = ids[task.id]
                where = "the same phase" if other is phase else f"phase {other.number}"
                yield _problem(task.line, f"duplicate task ID {task.id} (first on line {first.line}, in {where})")
            ids.setdefault(task.id, (phase, task))


def _no_box(blocks: Sequence[Block]) -> tuple[int, str]:
    """The line and the reason why a text without boxes is not a task list."""
    if not blocks:
        return 1, "the file is empty"
    code = next(
        (block for block in blocks if isinstance(block, Text) and block.is_code and parse_box(block.text, 0)), None
    )
    if code:
        return code.line, "all boxes are in code fences; a task is `- [ ] text` outside of them"
    bare = next((block for block in blocks if isinstance(block, Text) and _ID_WITHOUT_BOX.match(block.text)), None)
    if bare:
        return bare.line, f"no box: a task is `- [ ] text`, this is `{bare.text[:60]}`"
    return 1, "no box: a task is `- [ ] text`"


def _quoted(title: str) -> str:
    return f"“{title[:60]}”"


def _count(number: int, word: str) -> str:
    return f"{number} {word if number == 1 else word + 's'}"


def _problem(line: int, message: str) -> Problem:
    return Problem("", line, 1, message)
