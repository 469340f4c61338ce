"""A program to start, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from doflow.util.records import dataclass, field


@dataclass(frozen=True, slots=True)
class Timeout:
    """Seconds without output, and seconds in all; 0 = no limit."""

    idle: float = 600.0
    max: float = 7200.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start: nothing of it passes through a shell."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended: `code` is negative for a signal; `stopped` is '', idle, max or cancelled."""

    code: int
    out: str
    err: str
    elapsed: float = 0.0
    stopped: str = ""
