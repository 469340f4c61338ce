"""What the workspace of a job holds, with paths from the project's root."""

from __future__ import annotations

import os

from doflow.git import history
from doflow.guard.workspace import layers, overlay
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import JobStorage, RunStorage, project_folder
from doflow.runs.context import RunContext
from doflow.util import state_folder

_MANY = 5


def changes_in(stack: list[str], kept: str, top: str, root: str) -> tuple[LayerChange, ...]:
    """All changes in a stack of layers, with paths from the project's root (those outside of it begin with `../`)."""
    root = os.path.realpath(root)
    own = os.path.relpath(os.path.join(root, state_folder.NAME), top)

    def skip(path: str) -> bool:
        return path == ".git" or path.startswith(".git/") or path == own

    trees = [tree for layer in stack if os.path.isdir(tree := overlay.tree(layer))]
    raw = layers.stacked_changes(trees, [overlay.tree(kept)], top, skip)
    prefix = "" if root == top else os.path.relpath(root, top) + "/"
    return tuple(LayerChange(_from_root(change.path, prefix), change.kind, change.source) for change in raw)


def kept_changes(context: RunContext, store: JobStorage) -> tuple[LayerChange, ...]:
    """What the workspace of an unfinished job holds, without files that git ignores."""
    kept = RunStorage(project_folder(context.root, context.environ), context.run.name).kept
    found = changes_in(store.layers(), kept, store.opened().top, str(context.root))
    inner = [change.path for change in found if not change.path.startswith("../")]
    passed = history.ignored_among(context.git, inner) if inner else frozenset()
    return tuple(change for change in found if change.path not in passed)


def _from_root(path: str, prefix: str) -> str:
    if path.startswith(prefix):
        return path[len(prefix) :]
    return os.path.relpath(path, prefix)


def named(paths: tuple[str, ...]) -> str:
    """The first few paths, for a message."""
    return ", ".join(paths[:_MANY]) + (f" and {len(paths) - _MANY} more" if len(paths) > _MANY else "")
