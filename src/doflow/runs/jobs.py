"""Jobs: one unit of work for an agent or a command; its log files, time limit and heartbeat, and a store of its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from doflow.flow import plan
from doflow.flow.markdown import Phase
from doflow.flow.model import BY_AGENT, Step
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import Key
from doflow.util import atomic_files, state_folder
from doflow.util.process.runner import Timeout
from doflow.util.text import format_duration

_SPARE = ".spare"
LARGE = 64_000_000  # bytes
_BEGINNING = 4_000_000
_PIECE = 1_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """A step, or one phase of one. `makes` are paths from the project's root; `writes` None = everything unprotected.

    `of`: how many phases there are; `task`: the phase is this task of the list alone; `body`: of the commit message."""

    step: Step
    key: Key
    makes: tuple[str, ...] = ()
    writes: tuple[str, ...] | None = ()
    phase: Phase | None = None
    last: bool = False
    subject: str = ""
    repairs: frozenset[str] = frozenset()
    of: int = 0
    task: str = ""
    body: str = ""

    @property
    def name(self) -> str:
        return f"{self.step.id}:{self.phase.number}" if self.phase else self.step.id

    @property
    def where(self) -> dict[str, str]:
        """How event log entries name it."""
        return {"step": self.step.id, "phase": self.phase.number} if self.phase else {"step": self.step.id}

    @property
    def commits(self) -> bool:
        return bool(self.makes) or self.phase is not None

    @property
    def paid(self) -> bool:
        """Whether an agent does it; its start is synced to disk before the call."""
        return self.step.kind in BY_AGENT

    @property
    def watched(self) -> bool:
        """Whether files are compared before and after: for agents, and for commands whose flow limits what they may write."""
        asked = self.step.kind == "shell" and (self.step.writes is not None or bool(self.step.protect))
        return self.paid or self.step.repair > 0 or asked


def store_inputs(job: Job, context: RunContext) -> None:
    """Store the inputs of a job, so that a later revision can show what changed."""
    store = context.root / state_folder.STORE
    for path, digest in job.key.reads.items():
        if digest and "#" not in path and path not in context.files.task_lists and not (store / digest).exists():
            store.mkdir(parents=True, exist_ok=True)
            atomic_files.write_file(str(store / digest), (context.root / path).read_bytes())


def job_timeout(job: Job, context: RunContext) -> Timeout:
    return plan.step_timeout(job.step, context.settings)


def log_path(job: Job, context: RunContext, attempt: int, role: str = "step", part: str = "") -> str:
    """The log file of an attempt; numbering continues from earlier commands. `part`: a reviewer or item within the job."""
    extra = "" if role == "step" else f".{role}"
    name = f"{job.name}:{part}" if part else job.name
    stem = name.replace(":", ".").replace("/", ".")
    before = context.record.attempts(job.name)
    if before:
        attempt += _earlier(stem, context, 0 if part else before)
    return f"{context.logs}/{stem}.{attempt}{extra}.log"


def unused_log_path(job: Job, context: RunContext, attempt: int, role: str = "step") -> str:
    """A log path that is not in use: one attempt may have several repairs or command runs."""
    while os.path.lexists(path := log_path(job, context, attempt, role)):
        attempt += 1
    return path


def _earlier(stem: str, context: RunContext, known: int) -> int:
    """The number of attempts by earlier commands, from the event log and the log folder; looked up once."""
    found = context.record.log_number(stem)
    if found is None:
        numbers = [known]
        with suppress(OSError):
            names = (name for name in os.listdir(context.logs) if name.startswith(f"{stem}."))
            numbers += [int(part) for name in names if (part := name[len(stem) + 1 :].partition(".")[0]).isdecimal()]
        found = max(numbers)
        context.record.set_log_number(stem, found)
    return found


def begin_log(log: str, context: RunContext) -> None:
    """Create the log of a command. An empty log of an earlier command is reused, because creating a file costs more
    than the rest of a small step."""
    with suppress(FileNotFoundError):
        os.unlink(log)
    with suppress(OSError):
        os.rename(os.path.join(context.logs, _SPARE), log)


def end_log(log: str, context: RunContext) -> None:
    """Remove an empty log and trim one that is too large."""
    with suppress(OSError):
        size = os.stat(log).st_size
        if not size:
            os.rename(log, os.path.join(context.logs, _SPARE))
        elif size > LARGE:
            trim_logs(log)


def trim_logs(*logs: str) -> None:
    """Trim the middle of logs that are too large."""
    for log in logs:
        with suppress(OSError):
            trim_middle(log)


def trim_middle(path: str, most: int = LARGE) -> int:
    """Trim a log that is no longer written: the beginning, a line that says what was omitted, and the end remain.

    It is trimmed in place, so it works on a full disk. Returns the number of bytes omitted."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size <= most:
            return 0
        keep = _line(descriptor, min(_BEGINNING, most // 2))
        begin = _line(descriptor, size - (most - keep))
        words = f"doflow: {begin - keep:,} of {size:,} bytes omitted: a log keeps {most:,}\n".encode()
        end = _move(descriptor, begin, keep + len(words), size)
        os.pwrite(descriptor, words, keep)
        file.truncate(end)
        return begin - keep


def _line(descriptor: int, place: int) -> int:
    """The start of the next line, if it is near; else the position itself."""
    part = os.pread(descriptor, _PIECE, place)
    found = part.find(b"\n")
    return place + found + 1 if found >= 0 else place


def _move(descriptor: int, source: int, target: int, size: int) -> int:
    """Move the end of a file towards its start, in pieces; returns the new size."""
    while source < size:
        part = os.pread(descriptor, _PIECE, source)
        if not part:
            break
        os.pwrite(descriptor, part, target)
        source += len(part)
        target += len(part)
    return target


def heartbeat(
    job: Job, context: RunContext, out: str, limit_complaint: Callable[[str], str] | None = None
) -> Callable[[float, int], None]:
    """A callback that emits a heartbeat event at most once per second. `limit_complaint` returns the line of an error log
    that reports a rate limit ('' = none)."""
    last, heard = [-1.0], [0 if job.paid and limit_complaint else -1]

    def tick(elapsed: float, size: int) -> None:
        if elapsed - last[0] >= 1.0:
            last[0] = elapsed
            context.events.add("heartbeat", **job.where, elapsed=round(elapsed, 1), bytes=size, log=out)
            if limit_complaint and heard[0] >= 0:
                errors = out.removesuffix(".log") + ".err.log"
                heard[0] = _warn_of_limit(job, context, errors, heard[0], limit_complaint)

    return tick


def _warn_of_limit(job: Job, context: RunContext, err: str, heard: int, limit_complaint: Callable[[str], str]) -> int:
    """Warn once when an agent reports a rate limit, because it may wait for hours without output. Returns how much of the
    error log was read; -1 = already warned."""
    try:
        size = os.stat(err).st_size
    except OSError:
        return heard
    if size <= heard:
        return heard

    complaint = limit_complaint(err)
    if not complaint:
        return size
    idle = job_timeout(job, context).idle
    stop = f"; after {format_duration(idle)} without output it is stopped (`timeouts.idle`)" if idle else ""
    message = f"the agent of {job.name} reports a rate limit and may wait until it ends{stop}: {complaint}"
    context.events.add("warning", **job.where, message=message)
    return -1
