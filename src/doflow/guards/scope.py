"""What a job may write: its artifacts and its `writes`, never what is protected."""

from __future__ import annotations

from doflow import snapshot
from doflow.job import Job
from doflow.lock import NAME as LOCK
from doflow.world import World

#: files that steer doflow or an agent program: no agent changes them, whatever a flow allows
ALWAYS = (
    *("/doflow.yaml", "/dodo.py", "/flows/", "/.doflow/", "/.claude/settings*.json", "/.claude/hooks/", "/.mcp.json"),
    *("/.codex/", "/.gemini/settings.json", "/opencode.json", "/opencode.jsonc", "/.opencode/plugin/"),
)

#: in `layout: plan` the session's own files belong to doflow, and the PRD to a person
_PLAN = ("tasks.json", "prd_snapshot.md", "delta_prd.md", "delta_from.txt", "TEST_RESULTS.md")


class Scope:
    """Decides, path by path, for one job."""

    def __init__(self, job: Job, world: World) -> None:
        run = world.run.dir
        steer: tuple[str, ...] = (*ALWAYS, f"/{run}/input.md", f"/{run}/{LOCK}")
        plan = world.settings.layout == "plan"
        steer += (*(f"/{run}/{name}" for name in _PLAN), "/PRD.md", "*tasks*.json") if plan else ()
        self.protect = (*steer, *world.settings.protect, *world.flow.protect, *job.step.protect)
        self.makes = frozenset(job.makes)
        self.writes = job.writes
        self._root = f"{run}/" if plan else ""
        tasks = {world.phases(job.step)} if job.phase and job.step.phases else set()
        mine = self.makes | job.mends | tasks
        self.earlier = frozenset(path for path in world.book.artifacts if path not in mine)

    def protects(self, path: str) -> bool:
        return path in self.earlier or self._sessions_own(path) or snapshot.matches(self.protect, path)

    def allows(self, path: str) -> bool:
        if self.protects(path) or _of_git(path):
            return False
        if path in self.makes or self.writes is None:
            return True
        return snapshot.matches(self.writes, path)

    def names(self, path: str) -> bool:
        """Whether the flow itself says this path, rather than `everything`."""
        return path in self.makes or (self.writes is not None and snapshot.matches(self.writes, path))

    def _sessions_own(self, path: str) -> bool:
        """A file directly in the root of a session, but for what the step is there to make."""
        below = path.removeprefix(self._root) if self._root and path.startswith(self._root) else "/"
        return "/" not in below and path not in self.makes


def _of_git(path: str) -> bool:
    return ".git" in path.casefold().split("/")
