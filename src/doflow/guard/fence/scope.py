"""What a job may write: its artifacts and its `writes`, never what is protected."""

from __future__ import annotations

from doflow.flow import markdown as sections
from doflow.guard.snapshot import walk as snapshot
from doflow.runs import session_layout as sessionpaths
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state.lockfile import NAME as LOCK
from doflow.util.globs import ALWAYS


class Scope:
    """Decides, path by path, for one job."""

    def __init__(self, job: Job, world: World) -> None:
        run = world.run.dir
        steer = (
            *ALWAYS,
            f"/{run}/{world.input}",
            f"/{run}/{LOCK}",
            *sessionpaths.protected(run, world.params.get("prd", "")),
        )
        self._steer = steer
        self.protect = (*steer, *world.settings.protect, *world.flow.protect, *job.step.protect)
        self.name = job.name
        self.makes = frozenset(job.makes)
        self.writes = job.writes
        self.lists = frozenset(path for path in _lists(job, world) if not sections.is_backlog(path))
        mine = self.makes | job.mends | self.lists
        self.earlier = frozenset(path for path in world.book.artifacts if path not in mine)
        self._mine, self._roots = mine, sessionpaths.roots(run)

    def protects(self, path: str) -> bool:
        if path in self.earlier or snapshot.matches(self.protect, path):
            return True
        return path not in self._mine and snapshot.matches(self._roots, path)

    def allows(self, path: str) -> bool:
        if self.protects(path) or of_git(path):
            return False
        if path in self.makes or self.writes is None:
            return True
        return snapshot.matches(self.writes, path)

    def bar(self, path: str) -> str:
        """What bars a path: `always` (no flow can allow it), `protect`, `made` by an earlier step, `foreign` (in a repository
        of its own), `writes` (which do not name it)."""
        if of_git(path) or path.startswith("refs/doflow/") or snapshot.matches((*self._steer, *self._roots), path):
            return "always"
        if path in self.earlier:
            return "made"
        if self.protects(path):
            return "protect"
        return "foreign" if self.allows(path) else "writes"

    def names(self, path: str) -> bool:
        """Whether the flow itself says this path, rather than `everything`."""
        return path in self.makes or (self.writes is not None and snapshot.matches(self.writes, path))


def of_git(path: str) -> bool:
    return ".git" in path.casefold().split("/")


def _lists(job: Job, world: World) -> tuple[str, ...]:
    """The task list that a phase stands in: its agent may tick its boxes."""
    return (world.phases(job.step),) if job.phase and job.step.phases else ()
