"""The write fence around agents: compares the working tree before and after a job and reverts what is out of scope.

Jobs that run at the same time share one window: a change outside all their scopes fails all open jobs. The output of a
finished job becomes part of the baseline of those still running: no one else may change it. So does what a command of
the flow writes while no agent is running. A window is on disk while it is open, so that the next start can revert what a
killed job left.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from doflow.git import history, uncommitted_work
from doflow.git.repository import Repository
from doflow.guard import early_code, snapshot_walk
from doflow.guard.fence import command_changes, messages, own_output
from doflow.guard.fence.command_changes import Running
from doflow.guard.fence.scope import Scope
from doflow.guard.fence.workspace import Ground
from doflow.guard.snapshot_entries import Change, Item, Snapshot
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import file_signature
from doflow.util.errors import WorldError
from doflow.util.file_signature import FileSignature

Look = tuple[tuple[Change, ...], tuple[str, ...]]


class Fence:
    """One per run. Called with the context's lock held. The workspace of kind `in-place`: agents work in the person's own tree."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.ground = Ground(context)
        self._disk, self._terrain, self._control = self.ground.disk, self.ground.terrain, self.ground.control
        self._base: Snapshot | None = None
        self._open: dict[str, Scope] = {}
        self._tainted: dict[str, tuple[str, ...]] = {}
        self._abandoned: list[Scope] = []
        self._seen: dict[str, dict[str, Item | None]] = {}
        self._around: OutsideFiles | None = None
        self._work = ""
        self._began: dict[str, str] = {}
        self._own: set[str] = set()
        self._kept: dict[str, Item | None] = {}
        self._running: dict[str, Running] = {}
        self._quiet: Snapshot | None = None

    def kind_of(self, job: Job) -> str:
        return "in-place"

    def watches(self, job: Job) -> bool:
        return job.watched

    def see(self, job: Job) -> RunContext:
        return self._context

    def take_over(self, job: Job) -> None:
        """What the job made is in the project already."""

    def layers(self, job: Job) -> int:
        return 0

    def recover(self) -> tuple[str, ...]:
        """Done by `crash_restore`, with what only the engine knows."""
        return ()

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> None:
        """`entry`: what the job has returned already; its files belong to it."""
        scope = Scope(job, self._context)
        self._follow()
        if not self._open:
            self._base = self._terrain.take()
            if not self._work:
                self._terrain.prune()
            self._keep_work(job)
            self._tainted, self._seen = {}, {}
            self._kept, self._own, self._began = {}, set(), {}
            self._disk.heard = own_output.within(str(self._context.root))
            self._disk.write(self._base)
            self._around = self._outside()
            self._control.begin()
        if entry is not None:
            self._again(job, entry)
        elif self._open:
            self._put_right(job, "before it began")
        self._tainted.pop(job.name, None)
        self._open[job.name] = scope

    def look(self, job: Job) -> Look:
        """The job's own changes so far, and those outside every open scope (reverted, in quarantine)."""
        assert self._base is not None
        self._steering(job)
        if self._around is not None:
            self._around = self._outside(job)
        now = self._terrain.take(self._base)
        changes = tuple(
            change
            for change in snapshot_walk.compare(self._base, now)
            if not self.ground.ours(change.path, self._scopes)
        )
        changes = self._terrain.counted(changes, self._scopes)
        stray = tuple(change for change in changes if not self._allowed(change.path))
        if stray:
            self._restore(stray, f"{job.name} modified files outside its scope", job)
            leaked = tuple(change.path for change in stray if self._leaked(change, job))
            early_code.warn_early_code(self._context, leaked, job.step.id) if leaked else None
            self._taint(*(change.path for change in stray if change.path not in leaked))
        mine = tuple(change for change in changes if change not in stray and self._open[job.name].allows(change.path))
        self._list_kept(job, mine)
        theirs = self._theirs(mine) if job.paid or job.step.repair else ()
        if theirs:
            self._restore(theirs, f"{job.name} changed your uncommitted work", job)
            messages.work_kept(self._context, job, tuple(change.path for change in theirs))
        self._seen[job.name] = {path: now.items.get(path) for path in job.makes}
        return tuple(change for change in mine if change not in theirs), self._tainted.get(job.name, ())

    def _list_kept(self, job: Job, mine: tuple[Change, ...]) -> None:
        assert self._base is not None
        scope, context = self._open[job.name], self._context
        for change in mine if scope.lists else ():
            was = self._base.items.get(change.path)
            if change.path not in scope.lists or was is None or was.kind != "file":
                continue
            before = self.ground.read(was)
            said = early_code.read_regular(context, change.path)
            if early_code.is_reworded(before, said):
                self._restore((change,), f"{job.name} changed the text of its task list", job)
                early_code.add_ticks(context, change.path, said)
                early_code.warn_reworded(context, job, change.path)
            else:
                early_code.add_ticks(context, change.path, before)

    def beside(self, job: Job) -> tuple[str, ...]:
        """The jobs running with this one: a stray change may be theirs. Finished ones were found clean."""
        return tuple(name for name in {**self._tainted, **self._open} if name != job.name)

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Revert what the job changed inside its scope; returns the paths, which are in quarantine."""
        mine, _ = self.look(job)
        lists = [change.path for change in mine if change.path in self._open[job.name].lists]
        ticks = {path: early_code.ticks_of_others(self._context, job, path) for path in lists}
        self._restore(mine, why, job)
        for path, others in ticks.items():
            early_code.add_ticks(self._context, path, others)
        assert self._base is not None
        self._seen[job.name] = {path: self._base.items.get(path) for path in job.makes}
        return tuple(change.path for change in mine)

    def work(self, job: Job) -> str:
        """The commit that holds the working tree from before the job."""
        return self._began.get(job.name, self._work)

    def keep(self, job: Job) -> None:
        """What the job has returned is what an interrupted next call is reverted to: by `back`, or after a kill."""
        self._keep(job)
        self._save()

    def _keep(self, job: Job) -> Snapshot:
        assert self._base is not None
        now = self._terrain.take(self._base)
        made = self._context.record.returned.get(job.name, {}).get("files", {})
        self._kept |= {path: now.items.get(path) for path in made}
        return now

    def command_begins(self, job: Job, check: bool) -> None:
        """A command of the flow is running for the job, and no agent."""
        self._follow()
        self._running[job.name] = Running(job, check)
        self._hush(self._keep(job))

    def command_ended(self, job: Job) -> None:
        self._follow()
        self._running.pop(job.name, None)

    def _hush(self, now: Snapshot | None = None) -> None:
        """Record, also on disk, whether only commands are running from now on."""
        alone = self._open.keys() <= self._running.keys()
        self._quiet = (now or self._terrain.take(self._base)) if alone else None
        self._save(tuple(self._open) if alone else ())

    def _follow(self) -> None:
        """What commands have written while no agent was running becomes part of the baseline, except protected files."""
        since, self._quiet = self._quiet, None
        if self._base is None or since is None:
            self._save() if self._base is not None and self._disk.commands else None
            return
        check = all(running.check for running in self._running.values())
        undone = self._steered() if check else self._steering(next(iter(self._running.values())).job)
        now = self._terrain.take(since)
        found = tuple(
            change for change in snapshot_walk.compare(since, now) if not self.ground.ours(change.path, self._scopes)
        )
        counted = self._terrain.counted(found, self._scopes)
        sorted_ = command_changes.sort(self._context, found, counted, self._open)
        held = {change.path: now.items.get(change.path) for change in sorted_.left}
        self._base = with_items(self._base, held, parent_folders(held))
        if self._around is not None:
            self._around = self._outside()
        self._written(since, sorted_.counted)
        if check:
            self._put_back(sorted_, undone)
        self._save()

    def _written(self, since: Snapshot, left: tuple[Change, ...]) -> None:
        running, known = tuple(self._running.values()), self._terrain.in_git()
        new = command_changes.record(self._context, running[0].job.where, since, left, self._work)
        if named := tuple(path for path in new if path in known):
            command_changes.tell_left(self._context, running, named)

    def _put_back(self, found: command_changes.Sorted, undone: tuple[str, ...]) -> None:
        """What a check may not change is reverted, with a warning; of a task list the text."""
        running = tuple(self._running.values())
        self._restore(found.barred, f"{running[0].words} changed protected files", running[0].job)
        if paths := (*(change.path for change in found.barred), *undone):
            command_changes.tell_barred(self._context, running, paths)
        for one in running:
            self._list_kept(one.job, found.mine)

    def _steered(self) -> tuple[str, ...]:
        """What a check has changed of the files that control git and doflow: reverted, as messages."""
        running = next(iter(self._running.values()))
        why = f"{running.words} changed protected files"
        undone = self._control.check(self.ground.quarantine.about(why, self._context.run.name, running.job.name))
        return (*undone.refused, *undone.told)

    def _save(self, quiet: tuple[str, ...] = ()) -> None:
        assert self._base is not None
        self._disk.write(with_items(self._base, self._kept, parent_folders(self._kept)), quiet)

    def back(self, job: Job) -> tuple[str, ...]:
        """Revert to what the job had returned before its last call; returns the paths that differed, which are in quarantine."""
        assert self._base is not None
        began, self._base = self._base, with_items(self._base, self._kept, frozenset())
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
        """Others still run: what the job has made, as its own agent returned it, is part of their baseline. A command that
        checks it may change it."""
        assert self._base is not None
        made = self._seen.pop(job.name, None)
        if made is None or job.step.check.run or job.step.check.tests:
            now = self._terrain.take(self._base)
            made = {path: now.items.get(path) for path in job.makes}
        self._base = with_items(self._base, made, parent_folders(made))
        self._kept = {path: item for path, item in self._kept.items() if path not in made}
        self._save()
        self._put_right(job, "after it returned")

    def _put_right(self, job: Job, when: str) -> None:
        """An artifact that changed while its own agent was not running: one of the running agents has changed it."""
        assert self._base is not None
        context, base = self._context, self._base.items
        if all(context.files.digest(path) == (base[path].value if path in base else "") for path in job.makes):
            return
        now = self._terrain.take(self._base)
        changes = tuple(change for change in snapshot_walk.compare(self._base, now) if change.path in job.makes)
        if changes:
            self._restore(changes, f"written by a step running in parallel with {job.name}, {when}", job)
            self._taint(*(change.path for change in changes))
            messages.not_its_own(context, job, tuple(change.path for change in changes), tuple(self._open), when)

    def abandon(self, job: Job) -> None:
        """A job was interrupted and its changes could not be reverted: the window stays on disk for the next start."""
        self._running.pop(job.name, None)
        self._quiet = None
        scope = self._open.pop(job.name, None)
        self._abandoned += [scope] if scope else []

    def _outside(self, job: Job | None = None) -> OutsideFiles | None:
        """The rest of the repository, if the project is only a folder of it."""
        if not self._context.prefix:
            return None

        before = self._around
        return (
            files_outside_project(self._context)
            if job is None or before is None
            else warn_outside_project(self._context, job, before)
        )

    def _steering(self, job: Job) -> tuple[str, ...]:
        keep = self.ground.quarantine.about(
            f"{job.name} changed files that control git or doflow", self._context.run.name, job.name
        )
        undone = self._control.check(keep)
        self._taint(*undone.refused)
        if undone.told:
            messages.git_undone(self._context, job, undone.told)
        return undone.refused

    def _taint(self, *paths: str) -> None:
        for name in self._open if paths else ():
            self._tainted[name] = tuple(dict.fromkeys((*self._tainted.get(name, ()), *paths)))

    @property
    def _scopes(self) -> tuple[Scope, ...]:
        """Of the running jobs, and of those whose changes could not be reverted."""
        return (*self._open.values(), *self._abandoned)

    def _allowed(self, path: str) -> bool:
        scopes, terrain = self._scopes, self._terrain
        if not any(scope.allows(path) for scope in scopes) or terrain.foreign(path):
            return False
        return not terrain.nested(path) or any(scope.names(path) for scope in scopes)

    def _leaked(self, change: Change, job: Job) -> bool:
        """Code in the run's folder, from a step that isn't a phase: a warning is enough."""
        if change.kind != "added" or job.phase or any(scope.protects(change.path) for scope in self._scopes):
            return False
        return early_code.is_leak(self._context, change.path)

    def _theirs(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Where a job may write everything: the user's uncommitted changes from before it are still not its to change."""
        assert self._base is not None
        folder = f"{self._context.run.dir}/"
        old = [change for change in changes if change.path in self._base.items and not change.path.startswith(folder)]
        old = [
            change for change in old
            if not any(scope.names(change.path) or change.path in scope.lists for scope in self._scopes)
        ]  # fmt: skip
        old = [change for change in old if change.path not in self._own]
        left = self._context.record.command_outputs
        old = [change for change in old if left.get(change.path) != self._base.items[change.path].value]
        if not old:
            return ()

        known = uncommitted_work.kept_paths(self._context.git, self._work)
        return tuple(change for change in old if f"{self._context.prefix}{change.path}" in known)

    def _again(self, job: Job, entry: Mapping[str, Any]) -> None:
        assert self._base is not None
        context, made = self._context, entry.get("files", {})
        self._began[job.name] = entry.get("work", "")
        self._own.update(made)
        self._base = snapshot_before(context.git, self._base, made, entry.get("work", ""), self._terrain.in_git())

    def _keep_work(self, job: Job) -> None:
        """Keep the user's uncommitted work under a ref of ours, whatever an agent does to the tree."""
        self._work = uncommitted_work.keep_work(
            self._context.git, self.ground.work_ref(job.name), self._terrain.clean()
        )

    def _restore(self, changes: tuple[Change, ...], why: str, job: Job) -> None:
        assert self._base is not None
        self.ground.restore(self._base, changes, why, job)


OutsideFiles = dict[str, FileSignature | None]

_MANY = 5


def files_outside_project(context: RunContext) -> OutsideFiles:
    """The files outside the project that differ from git, each with its stat, relative to the top of the working tree."""
    top = context.git.head.top
    return {
        name: file_signature.from_path(os.path.join(top, name), follow=False)
        for name in history.changed_outside_root(context.git)
    }


def warn_outside_project(context: RunContext, job: Job, before: OutsideFiles) -> OutsideFiles:
    """Warn about what has changed there since; returns the current state."""
    now = files_outside_project(context)
    # a file that equals git's has no entry, a deleted one has None
    names = sorted({name for name, _ in before.items() ^ now.items()})
    if names:
        shown = ", ".join(os.path.relpath(name, context.prefix) for name in names[:_MANY])
        more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
        context.events.add(
            "warning",
            **job.where,
            message=f"changed outside the project while {job.name} was running: {shown}{more}",
            hint=f"not reverted and not committed with {job.name}: check git status, then commit or undo it yourself; "
            "a sandboxed agent cannot write there",
        )
    return now


_EXECUTABLE, _LINK, _MODULE = "100755", "120000", "160000"


def snapshot_before(
    git: Repository, now: Snapshot, paths: Iterable[str], work: str, in_git: Mapping[str, tuple[str, str]]
) -> Snapshot:
    """`now` with these paths as in `work`, the commit of the working tree from before the job. What the user has
    committed since (`in_git`: path -> mode, blob id) is no longer the job's."""
    held = _held(git, work, in_git)
    items = dict(now.items)
    gone: set[str] = set()
    for path in paths:
        item = items.pop(path, None)
        mode, blob = held.get(path, ("", ""))
        if item.blob if item is not None else path not in in_git:
            mode, blob = in_git.get(path, ("", ""))
        if mode and mode != _MODULE:
            items[path] = item if item is not None and item.blob == blob else _item(git, mode, blob, item)
        else:
            gone.update(_above(path))
    return Snapshot(now.taken, items, now.folders - (gone - {above for path in items for above in _above(path)}))


def with_items(base: Snapshot, held: Mapping[str, Item | None], folders: frozenset[str]) -> Snapshot:
    """A snapshot with other items at some paths (None = absent)."""
    items = {path: item for path, item in {**base.items, **held}.items() if item is not None}
    return Snapshot(base.taken, items, base.folders | folders)


def parent_folders(paths: Iterable[str]) -> frozenset[str]:
    """All folders above these paths."""
    return frozenset(above for path in paths for above in _above(path))


def _held(git: Repository, work: str, in_git: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """The files of a commit; those of HEAD if that commit is gone."""
    try:
        return history.list_blobs(git, work) if work else in_git
    except WorldError:
        return in_git


def _item(git: Repository, mode: str, blob: str, now: Item | None) -> Item:
    data = history.read_blob(git, blob)
    if mode == _LINK:
        return Item("link", 0, os.fsdecode(data), "", FileSignature(0, 0, 0, 0))
    rights = now.mode if now is not None and now.kind == "file" else 0o644
    rights = rights | 0o111 if mode == _EXECUTABLE else rights & ~0o111
    return Item("file", rights, hashlib.sha256(data).hexdigest(), blob, FileSignature(0, 0, 0, 0))


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
