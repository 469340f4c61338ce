"""doflow: Make for coding agents.

For guests, in a project's `dodo.py`:

    import doflow
    globals().update(doflow.dodo())
"""

from __future__ import annotations


def dodo(root: str | None = None) -> dict[str, object]:
    """What doit needs to know: one task creator per flow, and where doflow keeps its state."""
    import sys

    from doflow.engine.doit import tasks

    return tasks.namespace(root, own=sys._getframe(1).f_globals)
