"""The kinds of workspaces, and which of them a job gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from doflow.flow.model import Outcome
from doflow.git.head import Head
from doflow.guard.fence.fence import Fence
from doflow.guard.workspace import overlay
from doflow.guard.workspace.interface import Changed, Workspace
from doflow.guard.workspace.layered import LayeredWorkspace
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.errors import UsageError

#: agents with a sandbox of their own, which does not start inside a view
_OWN_SANDBOX = ("codex",)


def choose_kind(asked: str, head: Head, root: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The kind of workspace here, and why not a better one ('' = it is the best, or the person chose it)."""
    if asked not in ("auto", "overlay"):
        return "in-place", ""
    obstacle = overlay.machine_obstacle(environ) or overlay.project_obstacle(head, root, environ)
    if obstacle and asked == "overlay":
        hint = "take the first kind that works (workspace: auto), or the project itself (workspace: in-place)"
        raise UsageError(f"`workspace: overlay` does not work here: {obstacle}", hint)
    return ("in-place", obstacle) if obstacle else ("overlay", "")


class Workspaces:
    """The workspaces of a run: each job has the kind that its step, its agent or the settings say."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._kinds: dict[str, str] = {}  # what was asked for -> what it is here

    @cached_property
    def in_place(self) -> Fence:
        return Fence(self._context)

    @cached_property
    def layered(self) -> LayeredWorkspace:
        return LayeredWorkspace(self._context)

    def kind_of(self, job: Job) -> str:
        context = self._context
        if context.record.returned.get(job.name, {}).get("layers") and self.layered.storage.job(job.name).exists:
            return "overlay"  # its result waits there
        profile = context.settings.profile(context.profile_of(job.step)) if job.paid else None
        asked = job.step.workspace or (profile.workspace if profile else "") or context.settings.workspace
        if asked == "auto" and profile is not None and (profile.use in _OWN_SANDBOX or profile.sandbox):
            return "in-place"
        if asked not in self._kinds:
            self._kinds[asked] = choose_kind(asked, context.head, str(context.root), context.environ)[0]
        return self._kinds[asked]

    def announce(self) -> None:
        """Say at the start of a run when its agents work in the project itself although the settings ask for better."""
        context = self._context
        _, obstacle = choose_kind(context.settings.workspace, context.head, str(context.root), context.environ)
        if obstacle:
            message = f"agents work in the project itself, a view of it cannot be made here: {obstacle}"
            context.events.add(
                "warning", message=message, hint="to say so yourself, in doflow.yaml: workspace: in-place"
            )

    def _for(self, job: Job) -> Workspace:
        return self.layered if self.kind_of(job) == "overlay" else self.in_place

    def watches(self, job: Job) -> bool:
        return self._for(job).watches(job)

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> None:
        self._for(job).enter(job, entry)

    def see(self, job: Job) -> RunContext:
        return self._for(job).see(job)

    def look(self, job: Job) -> tuple[Sequence[Changed], tuple[str, ...]]:
        return self._for(job).look(job)

    def keep(self, job: Job) -> None:
        self._for(job).keep(job)

    def back(self, job: Job) -> tuple[str, ...]:
        return self._for(job).back(job)

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        return self._for(job).undo(job, why)

    def command_begins(self, job: Job, check: bool) -> None:
        self._for(job).command_begins(job, check)

    def command_ended(self, job: Job) -> None:
        self._for(job).command_ended(job)

    def take_over(self, job: Job) -> Outcome | None:
        return self._for(job).take_over(job)

    def leave(self, job: Job) -> None:
        self._for(job).leave(job)

    def abandon(self, job: Job) -> None:
        self._for(job).abandon(job)

    def beside(self, job: Job) -> tuple[str, ...]:
        return self._for(job).beside(job)

    def work(self, job: Job) -> str:
        return self._for(job).work(job)

    def layers(self, job: Job) -> int:
        return self._for(job).layers(job)

    def recover(self) -> tuple[str, ...]:
        return self.layered.recover()
