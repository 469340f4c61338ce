"""Our refusals: what is raised when the world or a flow is not as it must be.

Every one carries a message (what and where) and a hint (what to type next).
"""

from __future__ import annotations

#: how a hint ends where no run is begun yet: only the person's own words, with the goal in them, start it
AGAIN = "then the same command again"


class DoflowError(Exception):
    """A breakage that a user can meet; shown as one message, never as a traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class WorldError(DoflowError):
    """Git, the disk or a program broke."""


class UsageError(DoflowError):
    """The command line asks for something that does not exist."""


class Undecided(UsageError):
    """Nothing is wrong, but only a person can say how to go on: exit code 2."""


class LockHeld(DoflowError):
    """Another run works in this project."""


class Problem:
    """One thing wrong in a file, at a line and a column (both from 1; 0 = the whole file)."""

    __slots__ = ("column", "file", "hint", "line", "message")

    def __init__(self, file: str, line: int, column: int, message: str, hint: str = "") -> None:
        self.file = file
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint

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
