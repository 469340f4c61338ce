"""Task ids: what is one, in lists where every tool writes them another way.

`T001`, `[T001]`, `**T001**:`, `1.`, `1.1`, `5c.1`, `C2.3`, `TASK-7`, `Task 1:`, `任务 1：`. Letters before a number are an id's only if the
list uses them with several numbers: `S3` and `UTF-8` are words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from doflow.flow.task_lists.lines import Box

_OPEN = r"(?P<open>[*_~`\[(]{0,6})"
_CLOSE = r"(?P<close>[*_~`\])]{0,6})(?P<separator>[ \t]?[.:：、．)—–-]|)(?P<close_2>[*_~`]{0,6})(?=\s|$|[\[(（]|[^\x00-\x7f])"
_ID = re.compile(
    rf"{_OPEN}(?:"
    r"(?P<dotted>\d{1,9}[a-z]?(?:\.\d{1,9})+[a-h]?)"
    r"|(?P<whole>\d{1,9}[a-z]?)"
    r"|(?P<letters>[A-Z][A-Za-z]{0,9})(?P<hyphen>[-_.]?)(?P<digits>\d{1,9}(?:[.-]\d{1,9})*[a-z]?)"
    r"|(?P<word>[^\W\d_]{1,20})[ \t]{1,2}#?(?P<count>\d{1,9}(?:\.\d{1,9})*)(?=[*_~`\])]*[ \t]?[.:：、．)*—–-])"
    rf"){_CLOSE}"
)
_LONGEST_RANGE = 100  # tasks in `T001–T100`
_SURE = frozenset({"T", "task"})  # kinds that are ids even if there is one alone


@dataclass(frozen=True, slots=True)
class NamedBox:
    """A box, its id ('' = none written) and its text. `kind`: the letters of the id, or `N` for numbers."""

    box: Box
    id: str
    kind: str
    text: str
    is_bracketed: bool = False

    @property
    def is_whole_number(self) -> bool:
        return self.kind == "N" and self.id.isdigit()


def name_boxes(boxes: Iterable[Box]) -> list[NamedBox]:
    """The boxes with the ids that their authors gave them."""
    found = [(box, _ID.match(box.body)) for box in boxes]
    numbers: dict[str, set[str]] = defaultdict(set)
    for _, match in found:
        if match:
            numbers[_kind(match)].add(_id(match))
    known = {kind for kind, used in numbers.items() if len(used) > 1 or kind in _SURE} | {"N"}
    if numbers["bare"].isdisjoint(dotted.partition(".")[0] for dotted in numbers["N"] if "." in dotted):
        known.discard("bare")  # `3 unit tests` is a text; `1 Setup` above `1.1 Install` is not
    return [_named(box, match if match and _kind(match) in known else None) for box, match in found]


@dataclass(frozen=True, slots=True)
class IdIndex:
    """The ids of a list: by the line of their box, in order, and where each is first."""

    by_line: Mapping[int, str]
    order: tuple[str, ...]
    places: Mapping[str, int]
    kinds: frozenset[str]

    def resolve(self, ranges: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
        """The ids in some ranges: those of this list, and those that look as if they were."""
        known: list[str] = []
        missing: list[str] = []
        for first, last in ranges:
            start, end = self.places.get(first, -1), self.places.get(last, -1)
            if 0 <= start < end < start + _LONGEST_RANGE:
                known += self.order[start : end + 1]
                continue
            for name in (first, last) if last else (first,):
                if name in self.places:
                    known.append(name)
                elif _letters(name) in self.kinds:
                    missing.append(name)
        return known, missing


def index_ids(boxes: Sequence[NamedBox]) -> IdIndex:
    """An id for every box: its own, or one made up."""
    by_line = _fill(boxes)
    order = tuple(by_line.values())
    places = {name: place for place, name in reversed(list(enumerate(order)))}
    return IdIndex(by_line, order, places, frozenset(_letters(one.id) for one in boxes if one.id))


def _fill(boxes: Sequence[NamedBox]) -> dict[int, str]:
    """Ids by line; those that are made up are `3`, or `T001.2` for the second box below T001."""
    taken = {one.id for one in boxes}
    counts: Counter[str] = Counter()
    ids: dict[int, str] = {}
    parents: list[tuple[int, str]] = []
    for one in boxes:
        while parents and parents[-1][0] >= one.box.indent:
            parents.pop()
        above = f"{parents[-1][1]}." if parents else ""
        chosen = one.id
        while not chosen:
            counts[above] += 1
            candidate = f"{above}{counts[above]}"
            chosen = "" if candidate in taken else candidate
        ids[one.box.line] = chosen
        parents.append((one.box.indent, chosen))
    return ids


def _letters(task_id: str) -> str:
    """The letters of an id; dotted numbers have `N` in common, whole numbers nothing."""
    letters = task_id.rstrip("0123456789.abcdefghijklmnopqrstuvwxyz-_")
    return letters or ("N" if "." in task_id else task_id)


def _kind(match: re.Match[str]) -> str:
    """What the ids of one list have in common: their letters, or that they are numbers."""
    if match["word"]:
        return match["word"].lower().removeprefix("sub")
    if match["letters"]:
        return match["letters"]
    is_bare = match["whole"] and not (match["close"] or match["separator"])
    return "bare" if is_bare else "N"


def _id(match: re.Match[str]) -> str:
    if match["letters"]:
        return f"{match['letters']}{match['hyphen']}{match['digits']}"
    return match["dotted"] or match["whole"] or match["count"]


def _named(box: Box, match: re.Match[str] | None) -> NamedBox:
    if match is None:
        return NamedBox(box, "", "", box.body)
    text = box.body[match.end() :].strip()
    closing = match["open"].lstrip("[(`")
    if closing and not match["close"] and not match["close_2"]:  # `**Task 1: text** more`
        text = text.replace(closing[::-1], "", 1)
    kind = _kind(match)
    return NamedBox(box, _id(match), "N" if kind == "bare" else kind, text, match["open"].endswith("["))
