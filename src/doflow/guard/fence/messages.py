"""Messages of the fence, and how it separates after a kill what agents wrote from what the user wrote since."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from doflow.guard.snapshot_entries import Change, Item
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.process.runner import ALIVE
from doflow.util.process.supervisor import FAREWELL

_TAIL = 4096
_MOMENT = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Left:
    """After a kill: reverted paths, reverted git state, and paths that the user wrote since."""

    back: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    since: tuple[str, ...] = ()


def git_undone(context: RunContext, job: Job, told: tuple[str, ...]) -> None:
    context.events.add(
        "warning",
        **job.where,
        message=f"the agent of {job.name} changed git state; reverted (its files stay): {'; '.join(told)}",
        hint="doflow makes the commits; if this was you, your commits are in: git log refs/doflow/undone/…",
    )


def work_kept(context: RunContext, job: Job, paths: tuple[str, ...]) -> None:
    names = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    context.events.add(
        "warning",
        **job.where,
        message=f"{names}: kept your uncommitted changes from before {job.name}, reverted the agent's",
        hint="the agent's version: doflow quarantine list; commit the file, or name it in `writes:`, to let agents change it",
    )


def not_its_own(context: RunContext, job: Job, paths: tuple[str, ...], beside: tuple[str, ...], when: str) -> None:
    """An artifact was written while its own agent was not running."""
    context.events.add(
        "warning",
        **job.where,
        message=f"{', '.join(paths)}: changed {when} by a step running in parallel with {job.name} ({', '.join(beside)}); reverted",
        hint="its version: doflow quarantine list",
    )


def recovered(context: RunContext, left: Left) -> None:
    """Messages about what was reverted after a kill."""
    if left.back:
        names = ", ".join(left.back[:20]) + (f" and {len(left.back) - 20} more" if len(left.back) > 20 else "")
        context.events.add(
            "warning", message=f"left by a killed step, moved to quarantine: {names}", hint="doflow quarantine list"
        )
    if left.told:
        told = "; ".join(left.told)
        context.events.add("warning", message=f"a killed step had changed git state; reverted: {told}")
    if left.since:
        names = ", ".join(left.since[:5]) + (f" and {len(left.since) - 5} more" if len(left.since) > 5 else "")
        context.events.add("warning", message=f"changed after the step was killed, kept as your edits: {names}")


def death(context: RunContext, begun: int, commands: tuple[str, ...]) -> int:
    """When the last process of a killed run's agents was dead (nanoseconds): their supervisor notes it in the log. If it was
    killed with them: a moment after doflow was last alive, or after the last output. If all had returned: when the last
    line about them was written. After a power cut: before the machine started. Otherwise unknown, and everything until
    now may be theirs."""
    state = context.state_dir
    logs = [path for path in (state / "logs").glob("*.log") if path.stat().st_mtime_ns >= begun]
    said = [path.stat().st_mtime_ns for path in logs if _farewell(path)]
    if said:
        return max(said)
    seen = [path.stat().st_mtime_ns for path in _alive(state) if path.stat().st_mtime_ns >= begun]
    if seen:
        return max(*seen, *(path.stat().st_mtime_ns for path in logs)) + _MOMENT
    if not commands and not at_work(context):
        window = (state / "window").stat().st_mtime_ns  # written again when a command of the flow has ended
        return max(window, _nanoseconds(context.record.last_event["at"]))
    started = _started()
    return started if started > begun else time.time_ns()


def at_work(context: RunContext) -> bool:
    """Whether an agent may have been running when the run was killed: one that was called, or about to be, and had not
    returned."""
    book = context.record
    whole = {*book.returned, *(name.partition(":")[0] for name in book.returned)}  # a review is where its fixer is
    return not book.returned or bool(book.open_calls) or not whole.issuperset(book.started)


def _nanoseconds(at: str) -> int:
    """The end of the millisecond that a record's time names."""
    return round(datetime.fromisoformat(at).timestamp() * 1000 + 1) * 1_000_000


def bury(state: Path) -> None:
    """Remove the liveness files of a killed run."""
    for path in _alive(state):
        path.unlink(missing_ok=True)


def _alive(state: Path) -> list[Path]:
    return list((state / "logs").glob(f".*{ALIVE}"))


def later(folder: str, change: Change, dead: int) -> bool:
    """Whether this was written after that moment. For a missing file the answer is no: restoring it loses nothing."""
    try:
        return os.lstat(os.path.join(folder, change.path)).st_ctime_ns > dead
    except OSError:
        return False


def same(folder: str, path: str, was: Item | None) -> bool:
    """Whether a path is as in the snapshot; anything that was not a regular file counts as equal."""
    if was is not None and was.kind != "file":
        return True
    try:
        with open(os.path.join(folder, path), "rb", opener=_quietly) as stream:
            return was is not None and hashlib.sha256(stream.read()).hexdigest() == was.value
    except FileNotFoundError:
        return was is None
    except OSError:
        return True


def _quietly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _farewell(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL))
            return stream.read().rstrip().endswith(FAREWELL.strip())
    except OSError:
        return False


def _started() -> int:
    """When the machine was booted, 0 if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("btime ")) * 1_000_000_000
    except (OSError, ValueError, StopIteration):
        return 0
