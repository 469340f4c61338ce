"""Workspaces made of layers: the programs of a job write into layers over the project, and only accepted changes leave them.

A job has a stack of layers, one for each program that ran for it. Nothing of the project itself changes before the job's
result is accepted (`take_over`); a killed job leaves its layers and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from doflow.flow.model import Outcome, Status
from doflow.git import head_reader, history
from doflow.guard import early_code
from doflow.guard.fence import messages
from doflow.guard.fence.scope import Scope
from doflow.guard.quarantine import Quarantine
from doflow.guard.workspace import apply, layer_edits, layers, overlay
from doflow.guard.workspace.changes import changes_in, kept_changes, named
from doflow.guard.workspace.given_files import GivenFiles, changed_uncommitted_work, note_given_files
from doflow.guard.workspace.job_place import JobPlace
from doflow.guard.workspace.layers import LayerChange
from doflow.guard.workspace.storage import JobStorage, Opened, RunStorage, project_folder
from doflow.runs import next_steps
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import ProjectFiles
from doflow.runs.jobs import Job
from doflow.runs.place import ProgramNeeds
from doflow.util import atomic_files, globs, state_folder
from doflow.util.errors import UsageError
from doflow.util.hints import Next
from doflow.util.process.runner import Command

Look = tuple[tuple[LayerChange, ...], tuple[str, ...]]

#: what agent programs and common tools write by themselves: dropped with a warning, the work of the job is not refused for it
_OWN_FILES = (
    *("/.claude/", "/.codex/", "/.gemini/", "/.opencode/", "/.cursor/"),
    *("**/__pycache__/", "**/.pytest_cache/", "**/.mypy_cache/", "**/.ruff_cache/"),
)


@dataclass(slots=True)
class OpenJob:
    """A job with its workspace. `kept`: how many layers hold what it had returned before its last call; `commands`: the
    layers that commands of the flow wrote, not its agent; `own`: paths that its agents changed."""

    job: Job
    scope: Scope
    storage: JobStorage
    opened: Opened
    files: ProjectFiles
    given: GivenFiles
    kept: int = 0
    command: str = ""
    barred: tuple[str, ...] = ()
    left: frozenset[str] = frozenset()
    own: set[str] = field(default_factory=set)


class LayeredWorkspace:
    """One per run. Called with the context's lock held, except for running programs."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._jobs: dict[str, OpenJob] = {}
        self.storage = RunStorage(project_folder(context.root, context.environ), context.run.name)

    def kind_of(self, job: Job) -> str:
        return "overlay"

    def watches(self, job: Job) -> bool:
        """Everything but what doflow itself does."""
        return job.step.kind not in ("install", "session", "gate", "flow")

    # opening

    def enter(self, job: Job, entry: Mapping[str, Any] | None = None) -> None:
        """`entry`: what the job has returned already, in the layers it had then."""
        store = self.storage.job(job.name)
        if entry is not None and store.exists:
            self._reopen(job, store, entry)
            return
        self._set_aside(job, store)
        head = head_reader.find_head(str(self._context.root))
        opened = store.create(Opened(head.commit, head.branch, overlay.top_of(head)))
        self._jobs[job.name] = self._open(job, store, opened, note_given_files(self._context, store))

    def see(self, job: Job) -> RunContext:
        """The run as the programs of this job see it; without a workspace of its own as it is."""
        with self._context.guard:
            if job.name not in self._jobs:
                store = self.storage.job(job.name)
                entry = self._context.record.returned.get(job.name, {})
                waits = entry.get("layers") and not entry.get("refused")
                if not (store.exists and waits) or store.applying() is not None:
                    return self._context
                self._reopen(job, store, entry)
            found = self._jobs[job.name]
            return self._context.with_files(found.files, JobPlace(self, found))

    def _open(self, job: Job, store: JobStorage, opened: Opened, given: GivenFiles) -> OpenJob:
        return OpenJob(job, Scope(job, self._context), store, opened, self._context.files.in_workspace(), given)

    def _reopen(self, job: Job, store: JobStorage, entry: Mapping[str, Any]) -> None:
        """Continue with what the job had returned; what an interrupted call wrote since goes to quarantine."""
        store.make_reachable()
        found = self._open(job, store, store.opened(), GivenFiles(store))
        self._jobs[job.name] = found
        found.kept = count = int(entry.get("layers", 0))
        found.own = set(entry.get("files", {}))
        if len(store.layers()) > count:
            self._drop_above(found, count, f"left by {job.name}, which was interrupted")
        self._refresh(found)

    def _set_aside(self, job: Job, store: JobStorage) -> None:
        """What an earlier attempt left in its workspace goes to quarantine before the next one starts."""
        if not store.exists:
            return
        store.make_reachable()
        found = self._open(job, store, store.opened(), GivenFiles(store))
        self._quarantine(
            found, self._counted(found, self._changes(found)), f"left by {job.name}, which was interrupted"
        )
        store.remove()

    # what was changed

    def _changes(self, found: OpenJob, stack: list[str] | None = None) -> tuple[LayerChange, ...]:
        stack = found.storage.layers() if stack is None else stack
        return changes_in(stack, self.storage.kept, found.opened.top, str(self._context.root))

    def _counted(self, found: OpenJob, changes: tuple[LayerChange, ...]) -> tuple[LayerChange, ...]:
        """Without files that git ignores, by the rules from before the job or by those it was allowed to write."""
        named = found.scope.makes | found.own
        asked = [
            c.path
            for c in changes
            if c.path not in named and not c.path.startswith("../") and not found.scope.protects(c.path)
        ]
        outer = {
            os.path.normpath(f"{self._context.prefix}{c.path}"): c.path for c in changes if c.path.startswith("../")
        }
        if not asked and not outer:
            return changes
        rules = {
            c.path: c.source for c in changes if os.path.basename(c.path) == ".gitignore" and found.scope.allows(c.path)
        }
        passed = history.ignored_among(self._context.git, asked) if asked else frozenset()
        passed |= {outer[path] for path in history.ignored_paths(self._context.git, list(outer))}
        if rules:
            new = [c.path for c in changes if c.kind == "added" and c.path in asked and c.path not in passed]
            passed |= apply.ignored_by(self._context, rules, new)
        return tuple(change for change in changes if change.path not in passed)

    def look(self, job: Job) -> Look:
        """The job's own changes so far, and those outside its scope, which are in quarantine and no longer in its workspace."""
        found = self._jobs[job.name]
        changes = self._counted(found, self._changes(found))
        stray = tuple(
            change for change in changes if not self._allowed(found, change) and change.path not in found.left
        )
        if stray:
            self._quarantine(found, stray, f"{job.name} modified files outside its scope")
        self._keep_lists(found, tuple(change for change in changes if change not in stray))
        refused = self._refused(found, stray)
        self._refresh(found)
        mine = tuple(c for c in self._counted(found, self._changes(found)) if c.path not in found.left)
        known = (self._context, found.scope, found.opened.head, found.given)
        if job.paid and (theirs := changed_uncommitted_work(*known, mine)):
            self._quarantine(found, theirs, f"{job.name} changed your uncommitted work")
            messages.work_kept(self._context, job, tuple(change.path for change in theirs))
            self._refresh(found)
            mine = tuple(change for change in mine if change not in theirs)
        found.own |= {change.path for change in mine}
        barred, found.barred = found.barred, ()
        return mine, tuple(dict.fromkeys((*barred, *refused)))

    def _allowed(self, found: OpenJob, change: LayerChange) -> bool:
        if change.kind == "special" or change.path.startswith("../") or not found.scope.allows(change.path):
            return False
        return not self._nested(found, change.path) or found.scope.names(change.path)

    def _nested(self, found: OpenJob, path: str) -> bool:
        """Inside a repository of its own (a submodule, too): our commits cannot contain its files."""
        parts = path.split("/")
        return any(os.path.lexists(found.files.locate("/".join((*parts[:depth], ".git"))) or "/nonexistent")
                   for depth in range(1, len(parts)))  # fmt: skip

    def _refused(self, found: OpenJob, stray: tuple[LayerChange, ...]) -> tuple[str, ...]:
        """The strays for which the result is refused: not those that agent programs write by themselves, and of a job that
        may write nothing only protected files."""
        context, job = self._context, found.job
        leaked = tuple(c.path for c in stray if c.kind == "added" and not job.phase and early_code.is_leak(context, c.path)
                       and not found.scope.protects(c.path))  # fmt: skip
        if leaked:
            early_code.warn_early_code(context, leaked, job.step.id)
        reading = job.writes == () and (job.step.from_text or not job.makes)
        passed = {
            c.path for c in stray if globs.matches(_OWN_FILES, c.path) or (reading and not found.scope.protects(c.path))
        }
        if dropped := tuple(sorted(passed - {*leaked})):
            message = (
                f"{job.name} also wrote {named(dropped)}, outside its scope; not taken over, a copy is in quarantine"
            )
            context.events.add("warning", **job.where, message=message, hint="doflow quarantine list")
        return tuple(c.path for c in stray if c.path not in passed and c.path not in leaked)

    def _keep_lists(self, found: OpenJob, changes: tuple[LayerChange, ...]) -> None:
        """The agent of a phase may tick boxes of its task list, and change nothing else in it."""
        context = self._context
        for change in changes:
            before = os.path.join(context.root, change.path)
            if change.path not in found.scope.lists or not os.path.isfile(before):
                continue
            with open(before, "rb") as stream:
                was = stream.read()
            now = layers.content_of(change)
            if not early_code.is_reworded(was, now):
                continue
            self._quarantine(found, (change,), f"{found.job.name} changed the text of its task list")
            ticked = early_code.with_ticks(was, now)
            if ticked != was:
                self.write(found, change.path, ticked)
            early_code.warn_reworded(context, found.job, change.path)

    def _refresh(self, found: OpenJob) -> None:
        """Show the changes so far to everything that reads the job's files."""
        changes = self._changes(found)
        found.files.show({change.path: change.source for change in changes})

    # undoing

    def undo(self, job: Job, why: str) -> tuple[str, ...]:
        """Drop everything; returns the paths in its scope, which are in quarantine."""
        mine, _ = self.look(job)
        found = self._jobs[job.name]
        self._quarantine(found, mine, why)
        found.storage.drop(0)
        self._refresh(found)
        return tuple(change.path for change in mine)

    def keep(self, job: Job) -> None:
        """What the job has returned is what an interrupted next call is reverted to."""
        found = self._jobs[job.name]
        found.kept = len(found.storage.layers())

    def back(self, job: Job) -> tuple[str, ...]:
        """Revert to what the job had returned before its last call; returns the paths that differed, which are in quarantine."""
        found = self._jobs[job.name]
        paths = self._drop_above(found, found.kept, f"left by {job.name}, which was interrupted")
        self._refresh(found)
        return paths

    def _drop_above(self, found: OpenJob, count: int, why: str) -> tuple[str, ...]:
        stack = found.storage.layers()
        kept = {change.path: change for change in self._changes(found, stack[:count])}
        differ = tuple(c for c in self._changes(found, stack) if kept.get(c.path) != c)
        differ = tuple(c for c in self._counted(found, differ) if self._allowed(found, c))
        self._quarantine(found, tuple(c for c in differ if c.source and c.source.startswith(tuple(stack[count:]))), why)
        found.storage.drop(count)
        return tuple(change.path for change in differ)

    def _quarantine(self, found: OpenJob, changes: tuple[LayerChange, ...], why: str) -> None:
        """Move these changes out of the layers; the view shows again what was there before."""
        self._move(found, changes, why)
        stack = [overlay.tree(layer) for layer in found.storage.layers()]
        for change in changes:
            path = self._in_view(found, change.path)
            layer_edits.revert(stack, [overlay.tree(self.storage.kept)], found.opened.top, path)

    def _move(self, found: OpenJob, changes: tuple[LayerChange, ...], why: str) -> None:
        files = [(change.source, change.path) for change in changes if change.source and change.kind != "special"]
        if files:
            quarantine = Quarantine(self._context.root / state_folder.QUARANTINE)
            quarantine.take_files(files, why, self._context.run.name, found.job.name)

    # running programs

    def open_layer(self, found: OpenJob, command: Command, needs: ProgramNeeds) -> tuple[str, Command]:
        """A layer for one program, and the command that runs it there."""
        context = self._context
        with context.guard:
            below = [self.storage.kept, *found.storage.layers()]
            layer = found.storage.new_layer() if needs.keep else found.storage.passing_layer()
            head = context.head
        place = (head, str(context.root), below, layer, context.environ)
        return layer[0], overlay.wrap(command, *place, needs.writable, not needs.sandboxed)

    def close_layer(self, found: OpenJob, layer: str, needs: ProgramNeeds) -> None:
        """The program has ended. What an agent that only answers has written is dropped."""
        layer_edits.make_reachable(layer)
        with self._context.guard:
            if needs.keep:
                self._refresh(found)
                return
            changes = self._counted(found, self._changes(found, [*found.storage.layers(), layer]))
            new = tuple(change for change in changes if change.source.startswith(layer) or not change.source)
            barred = tuple(change for change in new if found.scope.protects(change.path))
            self._move(found, new, f"written by an agent of {found.job.name} that may only answer")
            found.barred += tuple(change.path for change in barred)
            if names := tuple(change.path for change in new if change not in barred):
                message = f"an agent of {found.job.name} that may only answer wrote {named(names)}; not taken over"
                self._context.events.add("warning", **found.job.where, message=message, hint="doflow quarantine list")
            layer_edits.remove_tree(os.path.dirname(layer))

    def make_folder(self, found: OpenJob, path: str) -> None:
        with self._context.guard:
            if path and not os.path.isdir(os.path.join(self._context.root, path)):
                layer_edits.make_folders(self._top_layer(found), self._in_view(found, path))

    def write(self, found: OpenJob, path: str, data: bytes) -> None:
        with self._context.guard:
            layer_edits.write_file(self._top_layer(found), self._in_view(found, path), data)
            self._refresh(found)

    def _top_layer(self, found: OpenJob) -> str:
        stack = found.storage.layers() or [found.storage.new_layer()[0]]
        os.makedirs(overlay.tree(stack[-1]), exist_ok=True)
        return overlay.tree(stack[-1])

    def _in_view(self, found: OpenJob, path: str) -> str:
        """A path of the project as the view has it."""
        prefix = os.path.relpath(os.path.realpath(self._context.root), found.opened.top)
        return os.path.normpath(os.path.join(prefix, path))

    def command_begins(self, job: Job, check: bool) -> None:
        """A command of the flow is running for the job, and no agent."""
        self.keep(job)
        self._jobs[job.name].command = "check" if check else "command"

    def command_ended(self, job: Job) -> None:
        """What the command wrote is the person's, except what the job itself has made; protected files are reverted."""
        found = self._jobs[job.name]
        check, found.command = found.command == "check", ""
        stack = found.storage.layers()
        if len(stack) <= found.kept:
            return
        before = {change.path: change for change in self._changes(found, stack[: found.kept])}
        new = tuple(c for c in self._changes(found, stack) if before.get(c.path) != c)
        counted = self._counted(found, new)
        barred = tuple(c for c in counted if c.path not in found.own and not self._may_command(found, c))
        if barred:
            who = f"the {'check' if check else 'command'} of {job.name}"
            self._quarantine(found, barred, f"{who} changed protected files")
            self._tell_barred(found, who, tuple(c.path for c in barred), check)
        made = found.scope.makes | found.scope.lists | found.own
        found.left |= {c.path for c in counted if c not in barred and c.path not in made}
        self._refresh(found)
        self._keep_lists(found, counted)

    def _may_command(self, found: OpenJob, change: LayerChange) -> bool:
        path = change.path
        return change.kind != "special" and not path.startswith("../") and (
            path in found.scope.makes or path in found.scope.lists or not found.scope.protects(path)
        )  # fmt: skip

    def _tell_barred(self, found: OpenJob, who: str, paths: tuple[str, ...], check: bool) -> None:
        if not check:
            found.barred += paths
            return
        self._context.events.add(
            "warning", **found.job.where, message=f"{who} changed {named(paths)}, which is protected; reverted",
            hint="the changed version: doflow quarantine list; the command may have run code that the agent wrote",
        )  # fmt: skip

    # the end of a job

    def leave(self, job: Job) -> None:
        """The workspace stays until its result is taken over or dropped."""
        found = self._jobs.get(job.name)
        if found is not None and not found.storage.layers():
            self._jobs.pop(job.name)
            found.given.wait()
            found.storage.remove()

    def abandon(self, job: Job) -> None:
        self._jobs.pop(job.name, None)

    def beside(self, job: Job) -> tuple[str, ...]:
        return ()

    def work(self, job: Job) -> str:
        return ""

    def layers(self, job: Job) -> int:
        found = self._jobs.get(job.name)
        return len(found.storage.layers()) if found else 0

    def take_over(self, job: Job) -> Outcome | None:
        """Write the accepted changes to the project; None = done. If that is not possible, both versions are kept."""
        context = self._context
        if job.name not in self._jobs and self.see(job) is context:
            return None
        found = self._jobs[job.name]
        if problem := self._moved(found):
            return problem
        changes = self._counted(found, self._changes(found))
        changes = tuple(c for c in changes if self._allowed(found, c) or c.path in found.left)
        planned = apply.plan_writes(context, found.storage, found.opened, found.given, changes)
        if planned.conflicts:
            return self._conflict(found, planned.conflicts)
        self._record_left(found, changes)
        intent = {"writes": planned.writes, "contents": apply.store_contents(context, planned.contents)}
        found.storage.begin_applying(intent)
        self._fold(found)
        self._finish(found.storage, intent)
        self._jobs.pop(job.name)
        return None

    def _finish(self, store: JobStorage, intent: Mapping[str, Any]) -> None:
        """Write the accepted files; after it the result is in the project, and only the commit is missing."""
        context, name = self._context, store.name
        apply.write_files(context, name, intent["writes"])
        entry = context.record.returned.get(name)
        if entry is not None:
            written = {write["path"] for write in intent["writes"]}
            fields = {key: value for key, value in entry.items() if key not in ("event", "at", "run", "layers")}
            now = context.files.digest
            files = {path: now(path) if path in written else digest for path, digest in entry.get("files", {}).items()}
            more = {"contents": intent["contents"]} if intent["contents"] else {}
            context.record.agent_returned(
                name, context.events.add("returned", True, **{**fields, "files": files, **more})
            )
        store.remove()

    def release(self, name: str) -> None:
        """Write what a refused job was allowed to change to the project, for the person who adopts it."""
        store = self.storage.job(name)
        if not store.exists or not self._context.record.returned.get(name, {}).get("refused"):
            return
        changes = kept_changes(self._context, store)
        planned = apply.plan_writes(self._context, store, store.opened(), GivenFiles(store), changes)
        if planned.conflicts:
            paths = named(tuple(one.path for one in planned.conflicts))
            hint = f"commit, move or undo your change, then: doflow adopt {name}"
            raise UsageError(f"{name} cannot be adopted: you changed {paths}, too; nothing was written", hint)
        intent = {"writes": planned.writes, "contents": {}}
        store.begin_applying(intent)
        self._finish(store, intent)

    def _record_left(self, found: OpenJob, changes: tuple[LayerChange, ...]) -> None:
        left = {c.path: found.files.digest(c.path) for c in changes if c.path in found.left}
        if left:
            self._context.events.add("left", **found.job.where, files=left)
            self._context.record.add_command_outputs(left)

    def _fold(self, found: OpenJob) -> None:
        """Ignored files stay with the run: later programs of it find them, the project does not get them."""
        kept = overlay.tree(self.storage.kept)
        os.makedirs(kept, exist_ok=True)
        for layer in found.storage.layers():
            tree = overlay.tree(layer)
            ignored = apply.ignored_entries(self._context, tree)
            for path in ignored:
                layer_edits.move_entry(os.path.join(tree, path), kept, path, tree)

    def _moved(self, found: OpenJob) -> Outcome | None:
        head = head_reader.find_head(str(self._context.root))
        before = found.opened
        if head.branch == before.branch and history.is_ancestor(self._context.git, before.head, head.commit):
            return None
        what = f"the branch was switched from {before.branch} to {head.branch or 'a detached HEAD'}"
        if head.branch == before.branch:
            what = f"{before.branch} was moved from {before.head[:12] or 'its start'} to {head.commit[:12]}"
        resume = next_steps.resume(self._context, does="takes its result without a call", link="then")
        steps = (Next(("git", "switch", before.branch)), resume)
        reason = f"{what} while {found.job.name} was running; nothing was written, its result is kept"
        return Outcome(Status.PAUSED, reason, held=True, next=steps)

    def _conflict(self, found: OpenJob, conflicts: tuple[apply.Conflict, ...]) -> Outcome:
        lines = "".join(f"\n    {one.path}: {one.why}" for one in conflicts[:10])
        reason = f"{found.job.name} is done, but you changed the same files; nothing was written, both versions are kept:{lines}"
        steps = (
            Next(("doflow", "workspace", "diff", found.job.name), does="shows what it changed"),
            next_steps.resume(
                self._context, why="commit, move or undo your change, then", does="takes its result without a call"
            ),
        )
        return Outcome(Status.PAUSED, reason, held=True, next=steps)

    # after a killed process

    def recover(self) -> tuple[str, ...]:
        """Finish writing accepted files; returns the jobs that were interrupted before their agent returned."""
        killed = []
        for store in self.storage.jobs():
            intent = store.applying()
            if intent is not None:
                for folder in {os.path.dirname(write["path"]) for write in intent["writes"]}:
                    atomic_files.remove_temporaries(self._context.root / folder)
                self._finish(store, intent)
            elif not self._context.record.returned.get(store.name, {}).get("layers"):
                killed.append(store.name)
        return tuple(killed)
