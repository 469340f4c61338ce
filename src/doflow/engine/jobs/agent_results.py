"""Results returned by agents: recorded with their files at once, so that a later process can use them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doflow.agents import call
from doflow.engine.jobs.commit import find_marker
from doflow.flow import task_lists
from doflow.flow.model import Outcome, Status
from doflow.git import history
from doflow.runs import jobs, task_list_files
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.place import InPlace

if TYPE_CHECKING:
    from doflow.guard.workspace.interface import Changed

_LAST = 4_000_000


def find_returned(job: Job, context: RunContext) -> Mapping[str, Any] | None:
    """What an agent returned before a crash, if all of it is unchanged. Of repairs for a command: the files that are
    unchanged, because the command runs again anyway."""
    entry = context.record.returned.get(job.name)
    if entry is None or entry.get("refused") or (entry.get("layers") and isinstance(context.place, InPlace)):
        return None  # refused, or its workspace is gone
    files: Mapping[str, str] = entry.get("files", {})
    repaired = bool(job.step.repair) and job.step.kind == "shell"
    if entry.get("unfinished") or (repaired and entry.get("key") != job.key.key):
        there = {path: digest for path, digest in files.items() if context.files.digest(path) == digest}
        return {**entry, "files": there, "unfinished": True} if there else None
    if entry.get("key") != job.key.key:
        return None
    edited = [path for path, digest in files.items() if context.files.digest(path) != digest]
    if not edited:
        return entry
    if job.phase is None or not _at_work(context, files):
        return None
    return {**entry, "files": {path: context.files.digest(path) for path in files}, "edited": edited}


def unchanged_files(job: Job, context: RunContext) -> dict[str, str]:
    """The files an agent returned before a crash that are unchanged or deleted. The others were edited by the user."""
    files: Mapping[str, str] = context.record.returned.get(job.name, {}).get("files", {})
    return {path: digest for path, digest in files.items() if context.files.digest(path) in (digest, "")}


def _at_work(context: RunContext, paths: Iterable[str]) -> bool:
    """Is some of it present and uncommitted? Then the user continued the work of the phase (fixed what a hook rejected).
    If everything matches HEAD they reverted it, and the phase runs again."""
    for path in paths:
        data = history.file_at(context.git, "HEAD", f"{context.prefix}{path}")
        held = "" if data is None else hashlib.sha256(data).hexdigest()
        if context.files.digest(path) not in ("", held):
            return True
    return False


def returned_outcome(entry: Mapping[str, Any]) -> Outcome:
    """The agent's outcome, rebuilt from its entry in the event log."""
    return Outcome(Status.DONE, text=_text(entry), model=entry.get("model", ""), marker=entry.get("marker", ""),
                   agent=entry.get("agent", ""))  # fmt: skip


def changed_files(job: Job, context: RunContext, changes: Sequence[Changed]) -> dict[str, str]:
    """The files a job created or changed: path → digest ('' = deleted). `changes`: those seen by the fence."""
    tasks = call.task_list(job, context) if job.watched else ""
    paths = [*(change.path for change in changes if change.path != tasks), *job.makes]
    paths += [tasks] if tasks and context.files.digest(tasks) else []
    return {path: context.files.digest(path) for path in paths}


def record_returned(
    job: Job, context: RunContext, made: Mapping[str, str], outcome: Outcome, attempt: int, **more: Any
) -> None:
    """Optional fields: `repairs`: number of repairs so far. `work`: the commit with the files as they were before the job.
    `unfinished`: a command decides whether the repairs are sufficient."""
    entry = context.events.add(
        "returned",
        job.paid,
        **job.where,
        key=job.key.key,
        files=made,
        log=jobs.log_path(job, context, attempt),
        model=outcome.model,
        **call.session_fields(outcome),
        agent=outcome.agent,
        marker=find_marker(job, context, outcome.text),
        **({"again": True} if job.phase and _done(job, context) else {}),
        **{name: value for name, value in more.items() if value},
    )
    context.record.agent_returned(job.name, entry)


def update_returned(job: Job, context: RunContext, layers: int = 0) -> None:
    """Update the recorded files after a command of the flow changed them (a formatter, say). Files that the agent deleted
    and the command created again belong to the command."""
    entry = context.record.returned.get(job.name, {})
    files: Mapping[str, str] = entry.get("files", {})
    kept = [path for path in files if files[path] or path in job.makes or not context.files.digest(path)]
    now = {path: context.files.digest(path) for path in kept}
    if now != files or (entry and layers != entry.get("layers", 0)):
        fields = {key: value for key, value in entry.items() if key not in ("event", "at", "run")}
        more = {"layers": layers} if layers else {}
        entry = context.events.add("returned", job.paid, **{**fields, "files": now, **more})
        context.record.agent_returned(job.name, entry)


def _done(job: Job, context: RunContext) -> bool:
    """Was it done before with the same key (even if since removed from the history), or is it being repaired?"""
    record, entry = context.record.steps.get(job.name), context.record.returned.get(job.name, {})
    known = {*context.record.phase_keys(job.name), *([record.key] if record else [])}
    return bool(entry.get("again")) or job.key.key in known


def _text(entry: Mapping[str, Any]) -> str:
    try:
        with open(entry.get("log", ""), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LAST))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def tick_task(job: Job, context: RunContext) -> None:
    """Tick the box of a task that was done alone, if its agent has not."""
    path = context.phases(job.step)
    with open(context.files.locate(path), "rb") as stream:
        text = stream.read().decode("utf-8", "surrogateescape")
    new = task_lists.tick(text, task_list_files.find_task(path, text, job.task))
    if new != text:
        context.place.write(path, new.encode("utf-8", "surrogateescape"))


def open_tasks(job: Job, context: RunContext) -> tuple[str, ...]:
    """The open tasks of a phase, unless it was done before with the same tasks: then its work may be there already."""
    record = context.record.steps.get(job.name)
    same = record is not None and record.parts.get("section") == job.key.parts.get("section")
    if job.step.kind != "implement" or job.phase is None or same or job.key.key in context.record.phase_keys(job.name):
        return ()
    tasks = task_lists.parse_task_list(job.phase.text).tasks
    wanted = [task for task in tasks if not task.done and (context.options.optional or not task.optional)]
    return tuple(f"{task.id} {task.text}".strip() for task in wanted)


def hold(job: Job, context: RunContext, files: Mapping[str, str], outcome: Outcome, attempt: int, layers: int) -> None:
    """Keep the part of a refused result that is in scope, for `doflow adopt`."""
    context.record.discard_returned(job.name)
    if files:
        record_returned(job, context, files, outcome, attempt, layers=layers, refused=True)
