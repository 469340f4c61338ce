"""Exceptions for errors that a user can meet.

Each has a message (what and where) and a hint (what to type next).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from doflow.util import hints
from doflow.util.hints import Next
from doflow.util.timestamps import now


class DoflowError(Exception):
    """An error for the user; shown as one message, never as a traceback.

    `advice` in words, `next` as commands; `hint` is the text of both."""

    def __init__(self, message: str, hint: str = "", steps: tuple[Next, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.advice = hint
        self.next = steps
        self.hint = hints.text(hint, steps)

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class WorldError(DoflowError):
    """Git, the disk or a program failed."""


class UsageError(DoflowError):
    """The command line asks for something that does not exist."""


class Undecided(UsageError):
    """Nothing is wrong, but a person must decide how to continue: exit code 2."""


class LockHeld(DoflowError):
    """Another run is active in this project."""


class Problem(NamedTuple):
    """One problem in a file ('' = no file), at a line and a column (both from 1; 0 = the whole file)."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class FlowError(DoflowError):
    """A flow or a settings file cannot be used; holds every problem found, in the order of the lines."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        files = list(dict.fromkeys(problem.file for problem in problems))
        problems = tuple(sorted(problems, key=lambda one: (files.index(one.file), one.line, one.column)))
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


_HINT = "\n  hint: "


def error_json(words: str, hint: str = "", **more: Any) -> str:
    """The object as one line; a hint at the end of the message is removed from it."""
    if not hint and words.count(_HINT) == 1:
        words, _, hint = words.partition(_HINT)
    return json.dumps({"event": "error", "at": now(), "run": "", "message": words, "hint": hint, **more}) + "\n"
