"""doflow: Make for coding agents.

For guests, in a project's `dodo.py`:

    import doflow
    globals().update(doflow.dodo())
"""

from __future__ import annotations


def dodo(root: str | None = None) -> dict[str, object]:
    """What doit needs to know: one task creator per flow, and where doflow keeps its state."""
    import inspect

    from doflow.engine.doit import namespace

    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    return namespace.dodo_names(root, own=caller.f_globals if caller is not None else None)
