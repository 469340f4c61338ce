"""At a start after a kill: reverts what agents had written, from the window that is still on disk."""

from __future__ import annotations

from collections.abc import Mapping

from doflow.git import refs
from doflow.guard import snapshot_walk
from doflow.guard.fence import command_changes, messages
from doflow.guard.fence.scope import Scope
from doflow.guard.fence.workspace import Ground
from doflow.guard.snapshot_entries import Change, Snapshot

_WHY = "left by a killed step"


def recover(
    ground: Ground, jobs: Mapping[str, Scope], whole: frozenset[str], begun: Mapping[str, Scope]
) -> messages.Left:
    """Revert what was written while killed jobs ran; `jobs` are those that will run again, `whole` the paths of those that
    had returned, `begun` all that were running.

    What was written after the agents were dead is the user's: it stays, and is named. What a command of the flow wrote
    while no agent was running stays, too.
    """
    context, base = ground.context, ground.disk.read()
    if base is None:
        ground.control.end()
        return messages.Left()
    root, dead = str(context.root), messages.death(context, base.taken, ground.disk.commands)
    keep = ground.quarantine.about(_WHY, context.run.name)
    undone = ground.control.recover(keep, lambda folder, change: not messages.later(folder, change, dead))
    now, terrain, scopes = ground.terrain.take(base), ground.terrain, tuple(jobs.values())
    changes = tuple(change for change in snapshot_walk.compare(base, now) if not ground.done(change.path, whole))
    since = tuple(c for c in changes if messages.later(root, c, dead) or terrain.committed(c.path, base, now))
    theirs = tuple(change for change in changes if change not in since)
    left = {change.path for change in _left(ground, base, theirs, begun)}
    theirs = tuple(change for change in theirs if change.path not in left)
    mine = tuple(change for change in theirs if any(scope.allows(change.path) for scope in scopes))
    stray = terrain.counted(tuple(change for change in theirs if change not in mine), scopes)
    ground.restore(base, (*mine, *stray), _WHY, None)
    ground.disk.close()
    messages.bury(context.state_dir)
    if any(change.path == ground.lock for change in stray):
        context.reload_record()
    back = (*(change.path for change in (*mine, *stray)), *undone.refused)
    return messages.Left(back, undone.told, tuple(change.path for change in terrain.counted(since, scopes)))


def _left(ground: Ground, base: Snapshot, theirs: tuple[Change, ...], begun: Mapping[str, Scope]) -> tuple[Change, ...]:
    """What commands had written when they were killed."""
    quiet = {name: begun[name] for name in ground.disk.commands if name in begun}
    if not quiet:
        return ()
    context, name = ground.context, next(iter(quiet))
    found = command_changes.sort(context, theirs, ground.terrain.counted(theirs, tuple(quiet.values())), quiet)
    where = {key: value for key, value in context.record.started[name].items() if key in ("step", "phase")}
    work = refs.commit_of(context.head, f"refs/doflow/wip/{ground.work_ref(name)}")
    command_changes.record(context, where, base, found.counted, work)
    return found.left


def foresee(ground: Ground, whole: frozenset[str], paths: tuple[str, ...]) -> dict[str, bytes | None]:
    """What `recover` would turn these paths into, where they differ: their bytes (None = deleted)."""
    base = ground.disk.read()
    if base is None:
        return {}
    context = ground.context
    dead, root = messages.death(context, base.taken, ground.disk.commands), str(context.root)
    found: dict[str, bytes | None] = {}
    for path in paths:
        if path not in whole and not messages.later(root, Change(path, "changed"), dead):
            was = base.items.get(path)
            found |= {} if messages.same(root, path, was) else {path: None if was is None else ground.read(was)}
    return found
