"""Read the screen of an agent: questions, end marker, errors, progress. Pure: text in, ScreenReading out."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

DONE, ASK = "DOFLOW: done", "DOFLOW: ask "
BOTTOM = 30  # a dialog is within this many lines from the end
REPEATED = 3

_FRAME = " \t│┃║╭╮╰╯─━═┌┐└┘|▏▕"
_OPTION = re.compile(r"^\W{0,6}?(?P<mark>[❯›▶●>])?\s*(?P<number>\d{1,2})[.)]\s+(?P<text>\S.*?)\s*$")
_YES_NO = re.compile(r"(\[y/n\]|\(y/n\)|\(yes/no\)|\[yes/no\])\s*[:?]?\s*$", 2)
_ERROR = re.compile(
    r"^\W*(Traceback \(most recent call last\)|API Error\b.*|(?:\w+\.)*\w*(?:Error|Exception): .+|fatal: .+|panic: .+"
    r"|error(?:\[\w+\])?: .+|npm ERR! .+)"
)
_EDIT = re.compile(r"^\W*[●⏺•]\s*(Write|Edit|Update|MultiEdit|NotebookEdit|Create)\((.+?)\)?\s*$")
_RESULT = re.compile(r"^\W*RESULT: *\w")
_BUSY = re.compile(r"(esc|ctrl[+-]c) to interrupt", 2)
_RULE = re.compile(r"^\s*[─━═]{20,}\s*$")
_CUT = "\f"  # replaces a rule across the screen: what is above it doesn't belong to the dialog
_CONTEXT = re.compile(r"context (?:left until auto-compact|low|left)\D{0,12}(\d{1,3})\s?%|(\d{1,3})%\s+context left", 2)
_TOKENS = re.compile(r"([\d.,]+)\s?([kKmM]?)\s+tokens\b")
_CHANGING = re.compile(r"[\d⠀-⣿✻✽✶✳✢·*◐◓◑◒|/\\-]+")


@dataclass(frozen=True, slots=True)
class ScreenReading:
    """What a screen shows. `question` '' = none; `waits` = it counts only if the screen stays unchanged.
    `done`: how often the end marker appears."""

    question: str = ""
    options: tuple[str, ...] = ()
    waits: bool = False
    menu: bool = False
    done: int = 0
    busy: bool = False
    error: str = ""
    repeated: bool = False
    edit: str = ""
    context_left: int | None = None
    tokens: int | None = None
    progress: str = ""


def read_screen(text: str) -> ScreenReading:
    lines = [_CUT if _RULE.match(line) else line.strip(_FRAME) for line in text.splitlines()]
    question, options, waits, menu = _asked(lines)
    errors = [found[1] for line in lines if (found := _ERROR.match(line))]
    edits = [f"{found[1]}({found[2]})" for line in lines if (found := _EDIT.match(line))]
    return ScreenReading(
        question, options, waits, menu, sum(map(_ended, lines)), bool(_BUSY.search(text)), errors[-1] if errors else "",
        bool(errors) and errors.count(errors[-1]) >= REPEATED, edits[-1] if edits else "",
        _context(text), _tokens(text), _progress(lines),
    )  # fmt: skip


def final_report(text: str) -> str:
    """What an agent reported, as far as the screen shows it: up to its last `RESULT: …` line, without frames and end marker."""
    lines = [line.strip(_FRAME) for line in text.splitlines()]
    places = [place for place, line in enumerate(lines) if _RESULT.match(line)]
    lines = lines[: places[-1] + 1] if places else lines
    return "\n".join(line for line in lines if not _ended(line)).strip()


def _ended(line: str) -> bool:
    """The marker alone, or with other text far to the right: programs may use columns."""
    return line == DONE or line.startswith(f"{DONE}   ")


def _asked(lines: list[str]) -> tuple[str, tuple[str, ...], bool, bool]:
    """A menu with a marked entry, else a line that waits for input."""
    bottom = [line for line in lines if line][-BOTTOM:]
    menu = _menu(bottom)
    if menu:
        return (*menu, False, True)
    bottom = [line for line in bottom if line != _CUT]
    asked = [line for line in bottom if line.startswith(ASK)]
    if asked:
        question, *options = [part.strip() for part in asked[-1][len(ASK) :].split("|")]
        behind = bottom[len(bottom) - bottom[::-1].index(asked[-1]) :]
        return ("", (), False, False) if behind or not question else (question, tuple(options), False, False)
    if bottom and _YES_NO.search(bottom[-1]):
        return bottom[-1], ("y", "n"), True, False
    if bottom and bottom[-1].endswith(("?", "?:")):
        return bottom[-1], (), True, False
    return "", (), False, False


def _menu(lines: list[str]) -> tuple[str, tuple[str, ...]] | None:
    """The last sequence of entries 1, 2, … with a marked one, and the text above it."""
    starts = [place for place, line in enumerate(lines) if (found := _OPTION.match(line)) and found["number"] == "1"]
    if not starts:
        return None
    options: list[str] = []
    marked, gap = False, 0
    for line in lines[starts[-1] :]:
        found = _OPTION.match(line)
        if found and int(found["number"]) == len(options) + 1:
            options.append(found["text"])
            marked, gap = marked or bool(found["mark"]), 0
        elif gap < 2:
            gap += 1  # an entry may have a description line
        else:
            return None  # there is newer output below: the menu is gone
    if not marked or len(options) < 2:
        return None
    above = lines[: starts[-1]]
    if _CUT in above:
        above = above[len(above) - above[::-1].index(_CUT) :]
    words = [line for line in above if any(sign.isalnum() for sign in line)]
    return " / ".join(words[-4:]) or "a menu", tuple(options)


def match_choice(answer: str, options: tuple[str, ...]) -> int:
    """The option that an answer selects, from 1: by number, text or prefix; 0 = none."""
    wanted = answer.strip().casefold()
    number = wanted.rstrip(".")
    if number.isdecimal() and 1 <= int(number) <= len(options):
        return int(number)
    texts = [option.casefold() for option in options]
    if wanted in texts:
        return texts.index(wanted) + 1
    return next((place for place, text in enumerate(texts, 1) if wanted and text.startswith(wanted)), 0)


def _context(text: str) -> int | None:
    found = list(_CONTEXT.finditer(text))
    return int(found[-1][1] or found[-1][2]) if found else None


def _tokens(text: str) -> int | None:
    found = list(_TOKENS.finditer(text))
    if not found:
        return None
    figure = found[-1][1].replace(",", "").strip(".")
    try:
        return int(float(figure) * {"": 1, "k": 1000, "m": 1_000_000}[found[-1][2].lower()])
    except ValueError:
        return None


def _progress(lines: list[str]) -> str:
    """A hash that changes with progress: ignores clocks and spinners, includes token counts."""
    kept = [_CHANGING.sub("", line) for line in lines if not _BUSY.search(line)]
    counted = [found[0] for line in lines for found in _TOKENS.finditer(line)]
    return hashlib.sha256("\n".join([*kept, *counted]).encode("utf-8", "replace")).hexdigest()[:16]
