"""What the importers find in a project and what they make of it."""

from __future__ import annotations

from dataclasses import dataclass

from doflow.util.errors import FlowError, Problem


@dataclass(frozen=True, slots=True)
class FoundList:
    """A task list with its counts. `phases` is 0 for formats without phases."""

    path: str
    done: int
    open: int
    phases: int = 0


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """A prompt of another tool: its name as typed (`speckit.plan`) and its file."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a project has of one format. `sources` are files that `doflow import` can read; `next` is what to type."""

    format: str
    folders: tuple[str, ...] = ()
    lists: tuple[FoundList, ...] = ()
    commands: tuple[AgentCommand, ...] = ()
    sources: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotMapped:
    """Something of the other tool that the flow does not have: where, what, and why or what holds instead."""

    file: str
    line: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write, relative to the project root."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A flow made from files of another tool, with the prompts it needs."""

    flow: str
    source: str
    files: tuple[NewFile, ...]
    not_mapped: tuple[NotMapped, ...] = ()


class NothingToImport(FlowError):
    """A file of a known format in which nothing is left to do."""

    def __init__(self, file: str, message: str, hint: str) -> None:
        super().__init__((Problem(file, 1, 1, message, hint),))
