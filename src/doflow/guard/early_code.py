"""Code written into a run's folder before the first phase (moved to quarantine with a warning), and edits of the task list.

Code is never moved once a phase of the run is done (then it may be the work itself), never outside the run's folder, and
never deleted.
"""

from __future__ import annotations

import os
import stat

from doflow.flow import markdown
from doflow.git import history
from doflow.guard.quarantine import Quarantine, open_parent
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import atomic_files, state_folder

#: suffixes of specs, plans, reports and images; anything else is code
_PAPERS = frozenset(
    (".md", ".txt", ".rst", ".adoc", ".yaml", ".yml", ".json", ".jsonl", ".toml", ".csv", ".lock", ".svg", ".png", ".pdf")
)  # fmt: skip


def is_leak(context: RunContext, path: str) -> bool:
    """Whether a file that no step makes is code in the run's folder, while no phase is done yet."""
    folder = f"{context.run.dir}/"
    suffix = os.path.splitext(path)[1].lower()
    return path.startswith(folder) and bool(suffix) and suffix not in _PAPERS and not _built(context)


def quarantine_early_code(context: RunContext) -> tuple[str, ...]:
    """Before the first phase: move untracked code to quarantine; returns the paths."""
    if _built(context):
        return ()

    below = len(context.prefix)
    found = [name[below:] for name in history.untracked_files(context.git, f"{context.prefix}{context.run.dir}")]
    known = {
        *context.record.artifacts,
        *(context.files.path(said) for step in context.flow.steps for said in step.makes),
    }
    leaked = tuple(path for path in found if path not in known and is_leak(context, path))
    quarantine = Quarantine(context.root / state_folder.QUARANTINE)
    for path in leaked:
        fd = open_parent(str(context.root), path)
        try:
            quarantine.take(fd, os.path.basename(path), path, "code written before the first phase", context.run.name)
        finally:
            os.close(fd)
    return leaked


def warn_early_code(context: RunContext, paths: tuple[str, ...], step: str) -> None:
    names = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    context.events.add(
        "warning",
        step=step,
        message=f"code was written into {context.run.dir} before the first phase; moved to quarantine: {names}",
        hint="doflow quarantine list",
    )


def _built(context: RunContext) -> bool:
    """A phase of an implement step is done."""
    kinds = {step.id: step.kind for step in context.flow.steps}
    return any(":" in name and kinds.get(name.partition(":")[0]) == "implement" for name in context.record.steps)


def is_reworded(before: bytes, after: bytes) -> bool:
    """Whether more than the boxes of a task list was changed."""
    return markdown.untick_boxes(_decoded(before)) != markdown.untick_boxes(_decoded(after))


def with_ticks(before: bytes, after: bytes) -> bytes:
    """The list from before, with the boxes ticked that are ticked in another version of it."""
    return markdown.tick_boxes(_decoded(before), _decoded(after)).encode("utf-8", "surrogateescape")


def add_ticks(context: RunContext, path: str, other: bytes) -> None:
    """Tick the boxes of the list that are ticked in another version of it: the agent's, or the one from before it."""
    was = read_regular(context, path)
    text = with_ticks(was, other)
    if text != was:
        mode = stat.S_IMODE(os.stat(context.root / path).st_mode)
        atomic_files.write_file(str(context.root / path), text, mode)


def ticks_of_others(context: RunContext, job: Job, path: str) -> bytes:
    """The list without the ticks of the job's phase: those elsewhere may be a person's, and stay if the job fails."""
    lines = _decoded(read_regular(context, path)).splitlines(keepends=True)
    if job.phase is None:
        return b""
    first, last = job.phase.line - 1, job.phase.line - 1 + len(job.phase.text.splitlines())
    own = markdown.untick_boxes("".join(lines[first:last]))
    return "".join((*lines[:first], own, *lines[last:])).encode("utf-8", "surrogateescape")


def warn_reworded(context: RunContext, job: Job, path: str) -> None:
    context.events.add(
        "warning",
        **job.where,
        message=f"the agent of {job.name} changed the text of {path}, where it may only tick boxes; reverted",
        hint="its version: doflow quarantine list; to add tasks, edit the file yourself while no run is active",
    )


def read_regular(context: RunContext, path: str) -> bytes:
    """The current content; empty unless it is a regular file."""
    try:
        fd = os.open(context.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as stream:
        return stream.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
