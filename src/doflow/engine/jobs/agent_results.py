"""What an agent has returned: written down with its files as soon as it is there, and found again by a later process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doflow.agents import sessions
from doflow.engine.jobs.commit import marker
from doflow.flow import markdown as sections
from doflow.flow.model import Outcome, Status
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util.records import dataclass

if TYPE_CHECKING:
    from doflow.guard.snapshot.entries import Change

_LAST = 4_000_000


@dataclass(frozen=True, slots=True)
class Again:
    """A result that is there already, the agent's last words, and what is wrong with it."""

    entry: Mapping[str, Any]
    outcome: Outcome
    trouble: str

    @property
    def unfinished(self) -> bool:
        return bool(self.entry.get("unfinished"))

    @property
    def repairs(self) -> int:
        return int(self.entry.get("repairs", 0))


def kept(job: Job, world: World) -> Mapping[str, Any] | None:
    """What an agent had returned before a crash, if all of it is still there, byte by byte. Of what it has mended so far
    for a command: as much as is still there, for the command is run again, whatever else has changed."""
    entry = world.book.returned.get(job.name)
    if entry is None:
        return None
    files: Mapping[str, str] = entry.get("files", {})
    if entry.get("unfinished"):
        there = {path: digest for path, digest in files.items() if world.digest(path) == digest}
        return {**entry, "files": there} if there else None
    if entry.get("key") != job.key.key:
        return None
    edited = [path for path, digest in files.items() if world.digest(path) != digest]
    if not edited:
        return entry
    if job.phase is None or not _at_work(world, files):
        return None
    return {**entry, "files": {path: world.digest(path) for path in files}, "edited": edited}


def _at_work(world: World, paths: Iterable[str]) -> bool:
    """Is some of it there and not committed? Then a person went on with what the agent of a phase had made (mended what a
    hook complained of). If all is as HEAD has it they took it back, and it is done anew."""
    from doflow.git import history

    for path in paths:
        data = history.show(world.git, "HEAD", f"{world.prefix}{path}")
        held = "" if data is None else hashlib.sha256(data).hexdigest()
        if world.digest(path) not in ("", held):
            return True
    return False


def outcome(entry: Mapping[str, Any]) -> Outcome:
    """As the agent's end was, from what is written down of it."""
    return Outcome(Status.DONE, text=_text(entry), model=entry.get("model", ""), marker=entry.get("marker", ""),
                   agent=entry.get("agent", ""))  # fmt: skip


def files(job: Job, world: World, mine: Sequence[Change]) -> dict[str, str]:
    """What a job has made or changed: path → digest ('' = deleted). `mine`: what the fence saw of it."""
    if job.watched:
        return {change.path: world.digest(change.path) for change in mine if change.path != _tasks(job, world)} | {
            path: world.digest(path) for path in (*job.makes, *_ticked(job, world))
        }
    return {path: world.digest(path) for path in job.makes}


def write(job: Job, world: World, made: Mapping[str, str], outcome: Outcome, attempt: int, **more: Any) -> None:
    """More, where there is any: `repairs`: how many led to it. `work`: the commit that holds the files as they were before
    the job. `unfinished`: it is a command's to say whether that was enough."""
    entry = world.ledger.add(
        "returned",
        job.paid,
        **job.where,
        key=job.key.key,
        files=made,
        log=watching.log_path(job, world, attempt),
        model=outcome.model,
        **sessions.plain(outcome),
        agent=outcome.agent,
        marker=marker(job, world, outcome.text) if job.step.routes else "",
        **({"anew": True} if job.phase and _done(job, world) else {}),
        **{name: value for name, value in more.items() if value},
    )
    world.book.returned[job.name] = entry


def follow(job: Job, world: World) -> None:
    """A command of the flow's own has changed what the agent returned (put it in order): it is that from now on. What the
    agent had removed and the command made again is the command's."""
    entry = world.book.returned.get(job.name, {})
    said: Mapping[str, str] = entry.get("files", {})
    now = {path: world.digest(path) for path in said if said[path] or path in job.makes or not world.digest(path)}
    if now != said:
        told = {key: value for key, value in entry.items() if key not in ("event", "at", "run")}
        world.book.returned[job.name] = world.ledger.add("returned", job.paid, **{**told, "files": now})


def _done(job: Job, world: World) -> bool:
    """Was it done before, as it is now (also if that was taken back out of the history), or is it being mended since?"""
    record, entry = world.book.steps.get(job.name), world.book.returned.get(job.name, {})
    known = {*world.book.once.get(job.name, ()), *([record.key] if record else [])}
    return bool(entry.get("anew")) or job.key.key in known


def _tasks(job: Job, world: World) -> str:
    """The task list that the agent ticks off; the statuses of a backlog are ours."""
    path = world.phases(job.step) if job.phase and job.step.phases else ""
    return "" if sections.is_backlog(path) else path


def _ticked(job: Job, world: World) -> tuple[str, ...]:
    path = _tasks(job, world)
    return (path,) if path and world.digest(path) else ()


def _text(entry: Mapping[str, Any]) -> str:
    try:
        with open(entry.get("log", ""), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LAST))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
