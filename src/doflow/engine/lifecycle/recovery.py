"""Recovery after a killed process: called once, under the run lock, before anything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from doflow.agents import spending
from doflow.engine.jobs.commit import recognise_backlog
from doflow.flow.markdown import Phase
from doflow.flow.model import BY_AGENT, Step
from doflow.git import commit, history
from doflow.guard import quarantine
from doflow.guard.fence import crash_restore, messages
from doflow.guard.fence.scope import Scope
from doflow.guard.snapshot_entries import Change
from doflow.runs import event_log, lockfile
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import Key
from doflow.runs.jobs import Job
from doflow.runs.lockfile import Artifact, Lock, StepRecord
from doflow.util import atomic_files

if TYPE_CHECKING:
    from doflow.guard.workspace.kinds import Workspaces


def recover(context: RunContext, fence: Workspaces) -> tuple[str, ...]:
    """Returns the paths that were restored or moved to quarantine."""
    restored: tuple[str, ...] = ()
    if killed := fence.recover():
        names = ", ".join(killed)
        message = f"{names} was interrupted; what it wrote is kept in its workspace"
        context.events.add("warning", message=message, hint="doflow workspace show")
    if (context.state_dir / "window").exists():  # before git is used: undo the changes of killed agents
        scopes, whole = _killed_jobs(context, fence)
        left = crash_restore.recover(fence.in_place.ground, scopes, whole, _scopes(context, context.record.started))
        messages.recovered(context, left)
        restored = left.back
    _restore_goal(context)
    book = context.record
    if not book.steps and not context.run.fresh and not (context.run_dir / lockfile.NAME).exists():
        relearn(context)
    for name, entry in list(book.returned.items()):
        _pending(context, name, entry)
    flying = {name: entry for name, entry in book.started.items() if name not in book.returned}
    back = [path for name, entry in flying.items() for path in _unwatched(context, name, entry)]
    if context.flow.in_sessions:
        recognise_backlog(context)
    if book.open_calls:
        spending.log_interrupted_calls(context)
    if back:
        messages.recovered(context, messages.Left(tuple(back)))
    return (*restored, *back)


def preview_recovery(context: RunContext, fence: Workspaces) -> tuple[frozenset[str], dict[str, bytes | None]]:
    """The killed jobs, and the contents of the artifacts after `recover` (None = removed)."""
    book = context.record
    declared = [context.files.path(said) for step in context.flow.steps for said in step.makes]
    started = [path for entry in book.started.values() for path in entry.get("makes", ())]
    scopes, whole = _killed_jobs(context, fence)
    found = crash_restore.foresee(
        fence.in_place.ground, whole, tuple(dict.fromkeys((*book.artifacts, *declared, *started)))
    )
    for name, entry in book.started.items():
        if name not in book.returned:
            found |= dict.fromkeys(_left(context, entry))
    return frozenset(scopes), found


def _restore_goal(context: RunContext) -> None:
    """The run's folder is gone (git reset to before its first commit): restore its goal from the event log, and forget
    what only the event log knows as done."""
    path = context.run_dir / "input.md"
    if path.exists() or not context.run.goal or context.frozen or context.flow.in_sessions:
        return
    if (
        not (context.run_dir / lockfile.NAME).exists()
        and _committed(context) is None
        and not _committed_phases(context)
    ):
        context.record.forget_everything_done()
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_file(str(path), (context.run.goal + "\n").encode("utf-8", "surrogateescape"))
    context.events.add("warning", message=f"{context.run.dir}/input.md was missing; restored from the event log")


def _killed_jobs(context: RunContext, fence: Workspaces) -> tuple[dict[str, Scope], frozenset[str]]:
    """The scopes of the killed jobs, and the paths of parallel jobs that had returned."""
    disk = fence.in_place.ground.disk
    base = disk.read()
    busy = bool(disk.commands) or messages.at_work(context)
    dead = 0 if base is None or busy else messages.death(context, base.taken, ())
    flying = {name: entry for name, entry in context.record.started.items() if not _whole(context, name, dead)}
    scopes = _scopes(context, flying)
    done = (entry.get("files", {}) for name, entry in context.record.returned.items() if name not in flying)
    whole = {path for made in done for path in made} | _settled(context, flying)
    return scopes, frozenset(whole)


def _scopes(context: RunContext, started: Mapping[str, Mapping[str, Any]]) -> dict[str, Scope]:
    return {name: scope for name, entry in started.items() if (scope := _scope(context, name, entry))}


def _settled(context: RunContext, flying: Collection[str]) -> set[str]:
    """The unchanged artifacts of steps that completed while the killed ones were still running."""
    made: dict[str, Mapping[str, str]] = {}
    for entry in event_log.read_events(context.state_dir / "events.jsonl"):
        if entry["event"] == "step_complete" and entry["step"] not in flying:
            made[entry["step"]] = (entry.get("record") or {}).get("made", {})
    return {path for files_ in made.values() for path, digest in files_.items() if context.files.digest(path) == digest}


def _whole(context: RunContext, name: str, dead: int) -> bool:
    """An agent had returned, and its files are unchanged or were edited by the user afterwards (after `dead`, if known):
    not undone."""
    files_: Mapping[str, str] = context.record.returned.get(name, {}).get("files", {})
    changed = [path for path, digest in files_.items() if context.files.digest(path) != digest]
    later = dead and all(messages.later(str(context.root), Change(path, "changed"), dead) for path in changed)
    return name in context.record.returned and (not changed or bool(later))


def relearn(context: RunContext) -> None:
    """No lock file in the working tree: load it from HEAD, else from the trailers of the run's commits."""
    held = _committed(context)
    if held is not None:
        context.record.load_lock(held)
        return
    for past in reversed(history.run_commits(context.git, context.run.name)):
        _learn(context, past)


def at_head(context: RunContext, step: Step) -> None:
    """A phase is done if the lock file at HEAD says so: phases removed from the history run again."""
    returned = context.record.returned
    phases = [name for name in context.record.steps if name.startswith(f"{step.id}:") and name not in returned]
    if not phases:
        return
    held = _committed(context)
    there = {name: record.key for name, record in held.steps.items()} if held else _committed_phases(context)
    for name in phases:
        if there.get(name) != context.record.steps[name].key:
            context.record.remove_step(name)
            context.record.remove_step(step.id)


def _committed_phases(context: RunContext) -> dict[str, str]:
    """The keys of the phases in HEAD's history, from the trailers of their commits."""
    found = reversed(history.run_commits(context.git, context.run.name))
    keyed = [commit for commit in found if commit.get("Doflow-Phase") and commit.get("Doflow-Key")]
    return {f"{commit['Doflow-Step']}:{commit['Doflow-Phase']}": commit["Doflow-Key"] for commit in keyed}


def _committed(context: RunContext) -> Lock | None:
    if not context.head.commit:
        return None
    data = history.file_at(context.git, "HEAD", f"{context.prefix}{context.run.dir}/{lockfile.NAME}")
    return lockfile.parse_lock(data, "doflow.lock at HEAD") if data and not lockfile.has_conflict(data) else None


def _learn(context: RunContext, commit: Mapping[str, str]) -> None:
    """Record a step from the trailers of its commit, with its current artifacts."""
    step = context.step(commit.get("Doflow-Step", ""))
    if step is None or not commit.get("Doflow-Key"):
        return
    phase = commit.get("Doflow-Phase", "")
    name = f"{step.id}:{phase}" if phase else step.id
    made = {path: context.files.digest(path) for path in map(context.files.path, () if phase else step.makes)}
    record = StepRecord(commit["Doflow-Key"], made=made, at=commit.get("at", ""))
    context.record.mark_uncommitted(name, step.id)
    context.complete(step.id, record, {})
    context.complete(name, record, {path: Artifact(digest, "agent", name) for path, digest in made.items()})


def _pending(context: RunContext, name: str, entry: Mapping[str, Any]) -> None:
    """An agent had returned. If its result is committed, log that; else its step is not done, whatever the lock file says."""
    intent, record = context.record.intents.get(name), context.record.steps.get(name)
    if record is not None and intent is not None and commit.is_adopted(context.git, intent["base"], intent["new"]):
        event = "phase_complete" if entry.get("phase") else "step_complete"
        where = {key: entry[key] for key in ("step", "phase") if key in entry}
        context.events.add(event, **where, record=record.plain(), commit=intent["new"], recovered=True)
        context.record.settle(name)
        return
    context.record.remove_step(name)
    if ":" in name:
        context.record.remove_step(name.partition(":")[0])


def _watched(step: Step) -> bool:
    """Is this a command whose files are watched? (see `Job.watched`)"""
    return step.repair > 0 or (step.kind == "shell" and (step.writes is not None or bool(step.protect)))


def _scope(context: RunContext, name: str, entry: Mapping[str, Any]) -> Scope | None:
    step = context.step(entry["step"])
    if step is None or (step.kind not in BY_AGENT and not _watched(step)):
        return None
    phase = Phase(entry["phase"], "", "", 0) if entry.get("phase") else None
    everything = step.writes is None and (phase is not None or step.kind == "shell")
    writes = None if everything else tuple(step.writes or ())
    makes = () if phase else tuple(context.files.path(said) for said in step.makes)
    repairs: frozenset[str] = frozenset()
    if phase and step.kind == "review":  # a fixer may change the reviewed files
        repairs = frozenset(path for read in step.reads for path in context.files.expand(read.path))
        writes = None if context.order.reviews_code(step) else tuple(f"/{path}" for path in repairs)
    return Scope(Job(step, Key("", {}, {}), makes, writes, phase, repairs=repairs), context)


def _unwatched(context: RunContext, name: str, entry: Mapping[str, Any]) -> list[str]:
    """Quarantine the artifacts that a killed command without a snapshot changed."""
    left = _left(context, entry)
    if left:
        quarantine.quarantine_outputs(context, left, "left by a killed step", name)
    return left


def _left(context: RunContext, entry: Mapping[str, Any]) -> list[str]:
    step = context.step(entry["step"])
    if step is None or step.kind in BY_AGENT or _watched(step):
        return []
    made = entry.get("makes", {}).items()
    return [path for path, digest in made if (now := context.files.digest(path)) and now != digest]
