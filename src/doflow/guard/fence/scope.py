"""What a job may write: its artifacts and its `writes`, never what is protected."""

from __future__ import annotations

from doflow.flow import markdown
from doflow.guard import snapshot_walk
from doflow.runs import session_layout
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.lockfile import NAME as LOCK
from doflow.util.globs import ALWAYS


class Scope:
    """Decides, path by path, for one job."""

    def __init__(self, job: Job, context: RunContext) -> None:
        run = context.run.dir
        steer = (
            *ALWAYS,
            f"/{run}/{context.input}",
            f"/{run}/{LOCK}",
            *session_layout.protected_globs(run, context.params.get("prd", "")),
        )
        self._steer = steer
        self.protect = (*steer, *context.settings.protect, *context.flow.protect, *job.step.protect)
        self.name = job.name
        self.makes = frozenset(job.makes)
        self.writes = job.writes
        self.lists = frozenset(path for path in _lists(job, context) if not markdown.is_backlog(path))
        mine = self.makes | job.repairs | self.lists
        self.earlier = frozenset(path for path in context.record.artifacts if path not in mine)
        self._mine, self._roots = mine, session_layout.root_file_globs(run)

    def protects(self, path: str) -> bool:
        if path in self.earlier or snapshot_walk.matches(self.protect, path):
            return True
        return path not in self._mine and snapshot_walk.matches(self._roots, path)

    def allows(self, path: str) -> bool:
        if self.protects(path) or is_git_file(path):
            return False
        if path in self.makes or self.writes is None:
            return True
        return snapshot_walk.matches(self.writes, path)

    def bar(self, path: str) -> str:
        """Why a path may not be written: `always` (no flow can allow it), `protect`, `made` by an earlier step, `foreign` (in a
        nested repository), `writes` (which don't name it)."""
        if (
            is_git_file(path)
            or path.startswith("refs/doflow/")
            or snapshot_walk.matches((*self._steer, *self._roots), path)
        ):
            return "always"
        if path in self.earlier:
            return "made"
        if self.protects(path):
            return "protect"
        return "foreign" if self.allows(path) else "writes"

    def names(self, path: str) -> bool:
        """Whether the flow names this path explicitly."""
        return path in self.makes or (self.writes is not None and snapshot_walk.matches(self.writes, path))


def is_git_file(path: str) -> bool:
    return ".git" in path.casefold().split("/")


def _lists(job: Job, context: RunContext) -> tuple[str, ...]:
    """The task list that a phase belongs to: its agent may tick its boxes."""
    return (context.phases(job.step),) if job.phase and job.step.phases else ()
