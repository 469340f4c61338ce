"""The fence around agents: what the tree was before a job, what it is after, and putting it back.

Jobs that run at the same time share one window: what is outside of all their scopes fails all that are open. What a job
has made is part of the ground of those that go on: nobody else changes it. So is what a command of the flow's own writes
while no agent is at work. A window is on disk while it is open, so that the next start can put back what a killed job
left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doflow.guard import early_code as leaks, task_list_words as listed
from doflow.guard.fence import (
    base_snapshot as earlier,
    command_changes as commands,
    messages as ends,
    own_output as hearers,
)
from doflow.guard.fence.command_changes import Running
from doflow.guard.fence.scope import Scope
from doflow.guard.fence.workspace import Ground
from doflow.guard.snapshot import walk as snapshot
from doflow.guard.snapshot.walk import Change, Item, Snapshot
from doflow.runs.context import World
from doflow.runs.job import Job

Look = tuple[tuple[Change, ...], tuple[str, ...]]


class Fence:
    """One per run. Called with the world's guard held."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ground = Ground(world)
        self._disk, self._terrain, self._control = self.ground.disk, self.ground.terrain, self.ground.control
        self._base: Snapshot | None = None
        self._open: dict[str, Scope] = {}
        self._tainted: dict[str, tuple[str, ...]] = {}
        self._abandoned: list[Scope] = []
        self._seen: dict[str, dict[str, Item | None]] = {}
        self._around: dict[str, tuple[int, ...]] | None = None
        self._work = ""
        self._began: dict[str, str] = {}
        self._own: set[str] = set()
        self._kept: dict[str, Item | None] = {}
        self._running: dict[str, Running] = {}
        self._quiet: Snapshot | None = None

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> Scope:
        """`entry`: what the job has returned already. Its files are its own, whoever looks at the tree now."""
        scope = Scope(job, self._world)
        self._follow()
        if not self._open:
            self._base = self._terrain.take()
            if not self._work:
                self._terrain.prune()
            self._keep_work(job)
            self._tainted, self._seen = {}, {}
            self._kept, self._own, self._began = {}, set(), {}
            self._disk.heard = hearers.within(str(self._world.root))
            self._disk.write(self._base)
            self._around = self._outside()
            self._control.begin()
        if entry is not None:
            self._again(job, entry)
        elif self._open:
            self._put_right(job, "before it began")
        self._tainted.pop(job.name, None)
        self._open[job.name] = scope
        return scope

    def look(self, job: Job) -> Look:
        """The job's own changes so far, and what lies outside of every open scope (put back, kept aside)."""
        assert self._base is not None
        self._steering(job)
        if self._around is not None:
            self._around = self._outside(job)
        now = self._terrain.take(self._base)
        changes = tuple(
            change for change in snapshot.compare(self._base, now) if not self.ground.ours(change.path, self._scopes)
        )
        changes = self._terrain.counted(changes, self._scopes)
        stray = tuple(change for change in changes if not self._allowed(change.path))
        if stray:
            self._restore(stray, f"{job.name} wrote where it may not", job)
            leaked = tuple(change.path for change in stray if self._leaked(change, job))
            leaks.tell(self._world, leaked, job.step.id) if leaked else None
            self._taint(*(change.path for change in stray if change.path not in leaked))
        mine = tuple(change for change in changes if change not in stray and self._open[job.name].allows(change.path))
        self._list_kept(job, mine)
        theirs = self._theirs(mine) if job.paid or job.step.repair else ()
        if theirs:
            self._restore(theirs, f"{job.name} changed your uncommitted work", job)
            ends.work_kept(self._world, job, tuple(change.path for change in theirs))
        self._seen[job.name] = {path: now.items.get(path) for path in job.makes}
        return tuple(change for change in mine if change not in theirs), self._tainted.get(job.name, ())

    def _list_kept(self, job: Job, mine: tuple[Change, ...]) -> None:
        assert self._base is not None
        scope, world = self._open[job.name], self._world
        for change in mine if scope.lists else ():
            was = self._base.items.get(change.path)
            if change.path not in scope.lists or was is None or was.kind != "file":
                continue
            before = self.ground.read(was)
            if listed.reworded(world, change.path, before):
                said = listed.read(world, change.path)
                self._restore((change,), f"{job.name} changed the words of its task list", job)
                listed.tick(world, change.path, said)
                listed.told(world, job, change.path)

    def beside(self, job: Job) -> tuple[str, ...]:
        """The jobs at work with this one: what strays may be theirs. Those that are gone were found clean."""
        return tuple(name for name in {**self._tainted, **self._open} if name != job.name)

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Put back what the job changed inside its scope; gives the paths, which are kept in quarantine."""
        mine, _ = self.look(job)
        self._restore(mine, why, job)
        assert self._base is not None
        self._seen[job.name] = {path: self._base.items.get(path) for path in job.makes}
        return tuple(change.path for change in mine)

    def work(self, job: Job) -> str:
        """The commit that holds what was there when the job began."""
        return self._began.get(job.name, self._work)

    def keep(self, job: Job) -> None:
        """What the job has returned is what its next call, should it break off, falls back to: `back`, or after a kill."""
        self._keep(job)
        self._save()

    def _keep(self, job: Job) -> Snapshot:
        assert self._base is not None
        now = self._terrain.take(self._base)
        made = self._world.book.returned.get(job.name, {}).get("files", {})
        self._kept |= {path: now.items.get(path) for path in made}
        return now

    def command_begins(self, job: Job, check: bool) -> None:
        """A command of the flow's own is at work for the job, and no agent."""
        self._follow()
        self._running[job.name] = Running(job, check)
        self._hush(self._keep(job))

    def command_ended(self, job: Job) -> None:
        self._follow()
        self._running.pop(job.name, None)

    def _hush(self, now: Snapshot | None = None) -> None:
        """From here on only commands are at work, if that is so: told on disk, too."""
        alone = self._open.keys() <= self._running.keys()
        self._quiet = (now or self._terrain.take(self._base)) if alone else None
        self._save(tuple(self._open) if alone else ())

    def _follow(self) -> None:
        """What commands have written while no agent was at work is ground from now on, but for what is protected."""
        since, self._quiet = self._quiet, None
        if self._base is None or since is None:
            self._save() if self._base is not None and self._disk.commands else None
            return
        check = all(running.check for running in self._running.values())
        undone = self._steered() if check else self._steering(next(iter(self._running.values())).job)
        now = self._terrain.take(since)
        found = tuple(
            change for change in snapshot.compare(since, now) if not self.ground.ours(change.path, self._scopes)
        )
        counted = self._terrain.counted(found, self._scopes)
        sorted_ = commands.sort(self._world, found, counted, self._open)
        held = {change.path: now.items.get(change.path) for change in sorted_.left}
        self._base = earlier.put(self._base, held, earlier.folders(held))
        if self._around is not None:
            self._around = self._outside()
        self._written(since, sorted_.counted)
        if check:
            self._put_back(sorted_, undone)
        self._save()

    def _written(self, since: Snapshot, left: tuple[Change, ...]) -> None:
        running, known = tuple(self._running.values()), self._terrain.in_git()
        new = commands.record(self._world, running[0].job.where, since, left, self._work)
        if named := tuple(path for path in new if path in known):
            commands.tell_left(self._world, running, named)

    def _put_back(self, found: commands.Sorted, undone: tuple[str, ...]) -> None:
        """What a check may not change: it is put back, and told; of a task list the words."""
        running = tuple(self._running.values())
        self._restore(found.barred, f"{running[0].words} changed what is protected", running[0].job)
        if paths := (*(change.path for change in found.barred), *undone):
            commands.tell_barred(self._world, running, paths)
        for one in running:
            self._list_kept(one.job, found.mine)

    def _steered(self) -> tuple[str, ...]:
        """What a check has changed of what steers git and doflow: put back, in words."""
        running = next(iter(self._running.values()))
        why = f"{running.words} changed what is protected"
        undone = self._control.check(self.ground.quarantine.about(why, self._world.run.name, running.job.name))
        return (*undone.refused, *undone.told)

    def _save(self, quiet: tuple[str, ...] = ()) -> None:
        assert self._base is not None
        self._disk.write(earlier.put(self._base, self._kept, earlier.folders(self._kept)), quiet)

    def back(self, job: Job) -> tuple[str, ...]:
        """As the job had returned it before its last call; gives the paths that differed, which are in quarantine."""
        assert self._base is not None
        began, self._base = self._base, earlier.put(self._base, self._kept, frozenset())
        try:
            return self.undo(job, f"left by {job.name}, which was interrupted")
        finally:
            self._base = began

    def leave(self, job: Job) -> None:
        self._open.pop(job.name, None)
        if self._open:
            self._found(job)
            self._hush()
        else:
            self._base = None
            self._control.end(not self._abandoned)
            if not self._abandoned:
                self._disk.close()

    def _found(self, job: Job) -> None:
        """Others go on: what the job has made, as its own agent returned it, is ground of theirs. A command that checks it
        may be meant to change it."""
        assert self._base is not None
        made = self._seen.pop(job.name, None)
        if made is None or job.step.check.run:
            now = self._terrain.take(self._base)
            made = {path: now.items.get(path) for path in job.makes}
        self._base = earlier.put(self._base, made, earlier.folders(made))
        self._kept = {path: item for path, item in self._kept.items() if path not in made}
        self._save()
        self._put_right(job, "after it returned")

    def _put_right(self, job: Job, when: str) -> None:
        """An artifact that is not what it was, while its own agent is not at work: one of those that are has changed it."""
        assert self._base is not None
        world, base = self._world, self._base.items
        if all(world.digest(path) == (base[path].value if path in base else "") for path in job.makes):
            return
        now = self._terrain.take(self._base)
        changes = tuple(change for change in snapshot.compare(self._base, now) if change.path in job.makes)
        if changes:
            self._restore(changes, f"written by a step beside {job.name}, {when}", job)
            self._taint(*(change.path for change in changes))
            ends.not_its_own(world, job, tuple(change.path for change in changes), tuple(self._open), when)

    def abandon(self, job: Job) -> None:
        """A job broke off and its traces could not be undone: the window stays on disk for the next start."""
        self._running.pop(job.name, None)
        self._quiet = None
        scope = self._open.pop(job.name, None)
        self._abandoned += [scope] if scope else []

    def _outside(self, job: Job | None = None) -> dict[str, tuple[int, ...]] | None:
        """The rest of the repository, where the project is but a folder of it."""
        if not self._world.prefix:
            return None
        from doflow.guard.fence import outside_project as around

        before = self._around
        return around.look(self._world) if job is None or before is None else around.tell(self._world, job, before)

    def _steering(self, job: Job) -> tuple[str, ...]:
        keep = self.ground.quarantine.about(
            f"{job.name} changed what steers git or doflow", self._world.run.name, job.name
        )
        undone = self._control.check(keep)
        self._taint(*undone.refused)
        if undone.told:
            ends.git_undone(self._world, job, undone.told)
        return undone.refused

    def _taint(self, *paths: str) -> None:
        for name in self._open if paths else ():
            self._tainted[name] = tuple(dict.fromkeys((*self._tainted.get(name, ()), *paths)))

    @property
    def _scopes(self) -> tuple[Scope, ...]:
        """Of the jobs that are at work, and of those whose traces could not be undone."""
        return (*self._open.values(), *self._abandoned)

    def _allowed(self, path: str) -> bool:
        return any(scope.allows(path) for scope in self._scopes) and not self._terrain.foreign(path)

    def _leaked(self, change: Change, job: Job) -> bool:
        """Code in the run's folder, from a step that is to build nothing: a warning is enough."""
        if change.kind != "added" or job.phase or any(scope.protects(change.path) for scope in self._scopes):
            return False
        return leaks.is_leak(self._world, change.path)

    def _theirs(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Where a job may write everything: what a person had not committed when it began is not its to change."""
        assert self._base is not None
        folder = f"{self._world.run.dir}/"
        old = [change for change in changes if change.path in self._base.items and not change.path.startswith(folder)]
        old = [change for change in old if not any(scope.names(change.path) for scope in self._scopes)]
        old = [change for change in old if change.path not in self._own]
        left = self._world.book.left
        old = [change for change in old if left.get(change.path) != self._base.items[change.path].value]
        if not old:
            return ()
        from doflow.git import wip

        known = wip.names(self._world.git, self._work)
        return tuple(change for change in old if f"{self._world.prefix}{change.path}" in known)

    def _again(self, job: Job, entry: Mapping[str, Any]) -> None:
        assert self._base is not None
        world, made = self._world, entry.get("files", {})
        self._began[job.name] = entry.get("work", "")
        self._own.update(made)
        self._base = earlier.before(world.git, self._base, made, entry.get("work", ""), self._terrain.in_git())

    def _keep_work(self, job: Job) -> None:
        """The person's uncommitted work, under a ref of ours: whatever an agent does to the tree, it is there."""
        from doflow.git import wip

        self._work = wip.wip(self._world.git, self.ground.work_ref(job.name), self._terrain.clean())

    def _restore(self, changes: tuple[Change, ...], why: str, job: Job) -> None:
        assert self._base is not None
        self.ground.restore(self._base, changes, why, job)
