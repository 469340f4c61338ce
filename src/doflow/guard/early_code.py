"""Code that was written into a run's folder before its time: moved to quarantine with a warning.

Never once a phase of the run is done (then it may be the work itself), never outside of the run's folder, never deleted.
"""

from __future__ import annotations

import os

from doflow.guard.quarantine import Quarantine, parent
from doflow.runs.context import STATE, World

#: what specs, plans, reports and their pictures are written in; anything else is code
_PAPERS = frozenset(
    (".md", ".txt", ".rst", ".adoc", ".yaml", ".yml", ".json", ".jsonl", ".toml", ".csv", ".lock", ".svg", ".png", ".pdf")
)  # fmt: skip


def is_leak(world: World, path: str) -> bool:
    """Whether a file that no step makes is code in the run's folder, while nothing is built yet."""
    folder = f"{world.run.dir}/"
    suffix = os.path.splitext(path)[1].lower()
    return path.startswith(folder) and bool(suffix) and suffix not in _PAPERS and not _built(world)


def sweep(world: World) -> tuple[str, ...]:
    """Before the first phase: what is there of it that git does not know; gives the paths, which are kept aside."""
    if _built(world):
        return ()
    from doflow.git import history

    below = len(world.prefix)
    found = [name[below:] for name in history.untracked(world.git, f"{world.prefix}{world.run.dir}")]
    known = {*world.book.artifacts, *(world.path(said) for step in world.flow.steps for said in step.makes)}
    leaked = tuple(path for path in found if path not in known and is_leak(world, path))
    quarantine = Quarantine(world.root / STATE / "quarantine")
    for path in leaked:
        fd = parent(str(world.root), path)
        try:
            quarantine.take(fd, os.path.basename(path), path, "code before its time", world.run.name)
        finally:
            os.close(fd)
    return leaked


def tell(world: World, paths: tuple[str, ...], step: str) -> None:
    names = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    world.ledger.add(
        "warning",
        step=step,
        message=f"code was written into {world.run.dir} before anything is to be built; it is kept aside: {names}",
        hint="doflow quarantine list",
    )


def _built(world: World) -> bool:
    """A phase of an implement step is done."""
    kinds = {step.id: step.kind for step in world.flow.steps}
    return any(":" in name and kinds.get(name.partition(":")[0]) == "implement" for name in world.book.steps)
