"""The kinds of workspaces, and which of them a run gets."""

from __future__ import annotations

from doflow.guard.fence.fence import Fence
from doflow.guard.workspace import overlay
from doflow.guard.workspace.interface import Workspace
from doflow.guard.workspace.layered import LayeredWorkspace
from doflow.runs.context import RunContext


def open_workspace(context: RunContext) -> Workspace:
    kind, _ = choose_kind(context)
    return LayeredWorkspace(context) if kind == "overlay" else Fence(context)


def choose_kind(context: RunContext) -> tuple[str, str]:
    """The kind for a run, and why it is not the best one ('' = it is, or the person chose it)."""
    asked = context.settings.workspace.kind
    if asked in ("in-place", "worktree"):
        return "in-place", ""
    obstacle = overlay.machine_obstacle(context.environ) or overlay.project_obstacle(
        context.head, str(context.root), context.environ
    )
    return ("in-place", obstacle) if obstacle else ("overlay", "")
