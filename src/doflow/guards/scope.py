"""What a job may write: its artifacts and its `writes`, never what is protected."""

from __future__ import annotations

from doflow import snapshot
from doflow.job import Job
from doflow.lock import NAME as LOCK
from doflow.world import World

#: files that steer doflow itself: no agent changes them, whatever a flow allows
ALWAYS = ("/doflow.yaml", "/dodo.py", "/flows/", "/.claude/settings*.json", "/.doflow/")


class Scope:
    """Decides, path by path, for one job."""

    def __init__(self, job: Job, world: World) -> None:
        run = world.run.dir
        steer = (*ALWAYS, f"/{run}/input.md", f"/{run}/{LOCK}")
        self._protect = (*steer, *world.settings.protect, *world.flow.protect, *job.step.protect)
        self.makes = frozenset(job.makes)
        self._writes = job.writes
        tasks = {world.phases(job.step)} if job.phase and job.step.phases else set()
        mine = self.makes | job.mends | tasks
        self._earlier = frozenset(path for path in world.book.artifacts if path not in mine)

    def protects(self, path: str) -> bool:
        return path in self._earlier or snapshot.matches(self._protect, path)

    def allows(self, path: str) -> bool:
        if self.protects(path):
            return False
        if path in self.makes or self._writes is None:
            return True
        return snapshot.matches(self._writes, path)
