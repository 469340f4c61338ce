"""What the fence has to say, and how it tells after a kill what agents wrote from what a person wrote since."""

from __future__ import annotations

import os
import time
from pathlib import Path

from doflow.guard.snapshot.entries import Change, Item
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util.process.runner import ALIVE
from doflow.util.process.supervisor import FAREWELL
from doflow.util.records import dataclass

_TAIL = 4096
_MOMENT = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Left:
    """After a kill: paths that were put back, what was undone in git, and paths that a person wrote since."""

    back: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    since: tuple[str, ...] = ()


def git_undone(world: World, job: Job, told: tuple[str, ...]) -> None:
    world.ledger.add(
        "warning",
        **job.where,
        message=f"the agent of {job.name} changed git itself, which is put back (its files stay): {'; '.join(told)}",
        hint="doflow commits what a step makes; if you did this yourself meanwhile: git log refs/doflow/undone/…",
    )


def work_kept(world: World, job: Job, paths: tuple[str, ...]) -> None:
    names = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    world.ledger.add(
        "warning",
        **job.where,
        message=f"{names}: not committed when {job.name} began, so it is yours and stays as it was",
        hint="what the agent made of it: doflow quarantine list; commit it, or name it in `writes:`, to let agents change it",
    )


def not_its_own(world: World, job: Job, paths: tuple[str, ...], beside: tuple[str, ...], when: str) -> None:
    """An artifact was written while its own agent was not at work."""
    world.ledger.add(
        "warning",
        **job.where,
        message=f"{', '.join(paths)}: changed {when} by a step at work beside {job.name} ({', '.join(beside)}), and put back",
        hint="what it wrote: doflow quarantine list",
    )


def recovered(world: World, left: Left) -> None:
    """What was made good after a kill, in words."""
    if left.back:
        names = ", ".join(left.back[:20]) + (f" and {len(left.back) - 20} more" if len(left.back) > 20 else "")
        world.ledger.add(
            "warning", message=f"left by a killed step and kept aside: {names}", hint="doflow quarantine list"
        )
    if left.told:
        told = "; ".join(left.told)
        world.ledger.add("warning", message=f"a killed step had changed git itself, which is put back: {told}")
    if left.since:
        names = ", ".join(left.since[:5]) + (f" and {len(left.since) - 5} more" if len(left.since) > 5 else "")
        world.ledger.add("warning", message=f"changed after the step was killed, so taken as yours: {names}")


def death(state: Path, begun: int) -> int:
    """When the last process of a killed run's agents was dead (nanoseconds): their watcher says so in the log. If it was
    killed with them: a moment after doflow was last alive, or anything was still said. After a power cut it was before the
    machine started; else nobody knows, and all until now may be theirs."""
    logs = [path for path in (state / "logs").glob("*.log") if path.stat().st_mtime_ns >= begun]
    said = [path.stat().st_mtime_ns for path in logs if _farewell(path)]
    if said:
        return max(said)
    seen = [path.stat().st_mtime_ns for path in _alive(state) if path.stat().st_mtime_ns >= begun]
    if seen:
        return max(*seen, *(path.stat().st_mtime_ns for path in logs)) + _MOMENT
    started = _started()
    return started if started > begun else time.time_ns()


def bury(state: Path) -> None:
    """What told of the life of a killed run is not needed any more."""
    for path in _alive(state):
        path.unlink(missing_ok=True)


def _alive(state: Path) -> list[Path]:
    return list((state / "logs").glob(f".*{ALIVE}"))


def later(folder: str, change: Change, dead: int) -> bool:
    """Whether this was written after that moment. A file that is gone tells nothing: putting it back loses nothing."""
    try:
        return os.lstat(os.path.join(folder, change.path)).st_ctime_ns > dead
    except OSError:
        return False


def same(folder: str, path: str, was: Item | None) -> bool:
    """Whether a path is what a snapshot says; what was no plain file is not told apart."""
    import hashlib

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
    """When the machine was started, 0 where that is not told."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("btime ")) * 1_000_000_000
    except (OSError, ValueError, StopIteration):
        return 0
