"""At a start after a kill: what agents had written is put back, from the window that is still on disk."""

from __future__ import annotations

from collections.abc import Mapping

from doflow.git import repository as look
from doflow.guard.fence import command_changes as commands, messages as ends
from doflow.guard.fence.scope import Scope
from doflow.guard.fence.workspace import Ground
from doflow.guard.snapshot import walk as snapshot
from doflow.guard.snapshot.entries import Change, Snapshot

_WHY = "left behind by a killed step"


def recover(ground: Ground, jobs: Mapping[str, Scope], whole: frozenset[str], begun: Mapping[str, Scope]) -> ends.Left:
    """Put back what was written while jobs worked that were killed; `jobs` are those to be done again, `whole` the paths
    of those that had returned, `begun` all that were at work.

    What was written after the agents were dead is a person's: it stays, and is named. What a command of the flow's own
    wrote while no agent was at work stays, too.
    """
    world, base = ground.world, ground.disk.read()
    if base is None:
        ground.control.end()
        return ends.Left()
    root, dead = str(world.root), ends.death(world.state_dir, base.taken)
    keep = ground.quarantine.about(_WHY, world.run.name)
    undone = ground.control.recover(keep, lambda folder, change: not ends.later(folder, change, dead))
    now, terrain, scopes = ground.terrain.take(base), ground.terrain, tuple(jobs.values())
    changes = tuple(change for change in snapshot.compare(base, now) if not ground.done(change.path, whole))
    since = tuple(c for c in changes if ends.later(root, c, dead) or terrain.committed(c.path, base, now))
    theirs = tuple(change for change in changes if change not in since)
    left = {change.path for change in _left(ground, base, theirs, begun)}
    theirs = tuple(change for change in theirs if change.path not in left)
    mine = tuple(change for change in theirs if any(scope.allows(change.path) for scope in scopes))
    stray = terrain.counted(tuple(change for change in theirs if change not in mine), scopes)
    ground.restore(base, (*mine, *stray), _WHY, None)
    ground.disk.close()
    ends.bury(world.state_dir)
    if any(change.path == ground.lock for change in stray):
        world.forget()
    back = (*(change.path for change in (*mine, *stray)), *undone.refused)
    return ends.Left(back, undone.told, tuple(change.path for change in terrain.counted(since, scopes)))


def _left(ground: Ground, base: Snapshot, theirs: tuple[Change, ...], begun: Mapping[str, Scope]) -> tuple[Change, ...]:
    """What commands had written when they were killed."""
    quiet = {name: begun[name] for name in ground.disk.commands if name in begun}
    if not quiet:
        return ()
    world, name = ground.world, next(iter(quiet))
    found = commands.sort(world, theirs, ground.terrain.counted(theirs, tuple(quiet.values())), quiet)
    where = {key: value for key, value in world.book.begun[name].items() if key in ("step", "phase")}
    work = look.commit_of(world.head, f"refs/doflow/wip/{ground.work_ref(name)}")
    commands.record(world, where, base, found.counted, work)
    return found.left


def foresee(ground: Ground, whole: frozenset[str], paths: tuple[str, ...]) -> dict[str, bytes | None]:
    """What `recover` would make of these paths, where they differ: their bytes then (None = gone)."""
    base = ground.disk.read()
    if base is None:
        return {}
    world = ground.world
    dead, root = ends.death(world.state_dir, base.taken), str(world.root)
    found: dict[str, bytes | None] = {}
    for path in paths:
        if path not in whole and not ends.later(root, Change(path, "changed"), dead):
            was = base.items.get(path)
            found |= {} if ends.same(root, path, was) else {path: None if was is None else ground.read(was)}
    return found
