"""Making good what a killed process left: called once, under the run's lock, before anything is decided."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from doflow.flow.model import BY_AGENT, Step
from doflow.runs.context import World
from doflow.runs.state import event_log as ledger, lockfile as lock
from doflow.runs.state.lockfile import Artifact, Lock, Record
from doflow.util import atomic_files as files

if TYPE_CHECKING:
    from doflow.guard.fence.fence import Fence
    from doflow.guard.fence.scope import Scope


def recover(world: World, fence: Fence) -> tuple[str, ...]:
    """Gives the paths that were put back as they were before, or aside."""
    put: tuple[str, ...] = ()
    if (world.state_dir / "window").exists():
        put = _fenced(world, fence)
    _goal(world)
    book = world.book
    if not book.steps and not world.run.fresh and not (world.run_dir / lock.NAME).exists():
        relearn(world)
    for name, entry in list(book.returned.items()):
        _pending(world, name, entry)
    flying = {name: entry for name, entry in book.begun.items() if name not in book.returned}
    back = [path for name, entry in flying.items() for path in _unwatched(world, name, entry)]
    if world.flow.in_sessions:
        from doflow.engine.jobs import backlog_status as statuses

        statuses.recognise(world)
    if book.calls:
        from doflow.agents import spending_purse as purse

        purse.made_good(world)
    if back:
        from doflow.guard.fence import messages as ends

        ends.recovered(world, ends.Left(tuple(back)))
    return (*put, *back)


def foreseen(world: World, fence: Fence) -> tuple[frozenset[str], dict[str, bytes | None]]:
    """The jobs that were killed, and what `recover` would make of the artifacts: their bytes then (None = gone)."""
    book = world.book
    said = [world.path(said) for step in world.flow.steps for said in step.makes]
    begun = [path for entry in book.begun.values() for path in entry.get("makes", ())]
    scopes, whole = _flying(world)
    from doflow.guard.fence import crash_restore as killed

    found = killed.foresee(fence.ground, whole, tuple(dict.fromkeys((*book.artifacts, *said, *begun))))
    for name, entry in book.begun.items():
        if name not in book.returned:
            found |= dict.fromkeys(_left(world, entry))
    return frozenset(scopes), found


def _goal(world: World) -> None:
    """The run's folder was taken away (git reset behind its first commit): its goal is written again from the ledger,
    and what the ledger alone knows as done was taken away with it."""
    path = world.run_dir / "input.md"
    if path.exists() or not world.run.goal or world.frozen or world.flow.in_sessions:
        return
    if not (world.run_dir / lock.NAME).exists() and _committed(world) is None and not _told(world):
        for told in (world.book.steps, world.book.loose, world.book.approvals):
            told.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(str(path), (world.run.goal + "\n").encode("utf-8", "surrogateescape"))
    world.ledger.add(
        "warning", message=f"{world.run.dir}/input.md was gone and is written again: {world.run.dir} goes on"
    )


def _fenced(world: World, fence: Fence) -> tuple[str, ...]:
    """First of all, before git is asked anything: what agents did that were at work when the process was killed."""
    from doflow.guard.fence import crash_restore as killed, messages as ends

    left = killed.recover(fence.ground, *_flying(world), _scopes(world, world.book.begun))
    ends.recovered(world, left)
    return left.back


def _flying(world: World) -> tuple[dict[str, Scope], frozenset[str]]:
    """What the killed jobs might write, and the paths of those beside them that had returned."""
    begun = world.book.begun
    flying = {name: entry for name, entry in begun.items() if not _whole(world, name)}
    scopes = _scopes(world, flying)
    done = (entry.get("files", {}) for name, entry in world.book.returned.items() if name not in flying)
    whole = {path for made in done for path in made} | _settled(world, flying)
    return scopes, frozenset(whole)


def _scopes(world: World, begun: Mapping[str, Mapping[str, Any]]) -> dict[str, Scope]:
    return {name: scope for name, entry in begun.items() if (scope := _scope(world, name, entry))}


def _settled(world: World, flying: Collection[str]) -> set[str]:
    """What steps made that were done while others, begun with them, still worked: as long as it is as they made it."""
    made: dict[str, Mapping[str, str]] = {}
    for entry in ledger.read(world.state_dir / "events.jsonl"):
        if entry["event"] == "step_complete" and entry["step"] not in flying:
            made[entry["step"]] = (entry.get("record") or {}).get("made", {})
    return {path for files_ in made.values() for path, digest in files_.items() if world.digest(path) == digest}


def _whole(world: World, name: str) -> bool:
    """An agent had returned, and all it made is still there: that is not undone."""
    files_: Mapping[str, str] = world.book.returned.get(name, {}).get("files", {})
    return name in world.book.returned and all(world.digest(path) == digest for path, digest in files_.items())


def sweep(world: World) -> None:
    """Half-written files of ours, where a killed process may have left them."""
    paths = {os.path.dirname(world.path(said)) for step in world.flow.steps for said in step.makes}
    for folder in {world.run_dir, world.state_dir, *(world.root / path for path in paths)}:
        files.sweep(folder)


def relearn(world: World) -> None:
    """No lock in the work tree: from the one at HEAD, else from the trailers of the run's commits."""
    from doflow.git import history

    held = _committed(world)
    if held is not None:
        world.book.steps.update(held.steps)
        world.book.artifacts.update(held.artifacts)
        world.book.approvals.update(held.approvals)
        world.book.notes.update(held.notes)
        world.book.variant = held.variant
        return
    for commit in reversed(history.history(world.git, world.run.name)):
        _learn(world, commit)


def at_head(world: World, step: Step) -> None:
    """A phase is done if the lock at HEAD says so: what a person took back out of the history is done again."""
    mine = [name for name in world.book.steps if name.startswith(f"{step.id}:") and name not in world.book.returned]
    if not mine:
        return
    held = _committed(world)
    there = {name: record.key for name, record in held.steps.items()} if held else _told(world)
    for name in mine:
        if there.get(name) != world.book.steps[name].key:
            world.book.steps.pop(name)
            world.book.steps.pop(step.id, None)


def _told(world: World) -> dict[str, str]:
    """The keys of the phases that HEAD's history holds, by the trailers of their commits."""
    from doflow.git import history

    found = reversed(history.history(world.git, world.run.name))
    keyed = [commit for commit in found if commit.get("Doflow-Phase") and commit.get("Doflow-Key")]
    return {f"{commit['Doflow-Step']}:{commit['Doflow-Phase']}": commit["Doflow-Key"] for commit in keyed}


def _committed(world: World) -> Lock | None:
    from doflow.git import history

    if not world.head.commit:
        return None
    data = history.show(world.git, "HEAD", f"{world.prefix}{world.run.dir}/{lock.NAME}")
    return lock.parse(data, "the lock at HEAD") if data and not lock.conflicted(data) else None


def _learn(world: World, commit: Mapping[str, str]) -> None:
    """What one commit's trailers say: this step had this key; its artifacts are as they are now."""
    step = world.step(commit.get("Doflow-Step", ""))
    if step is None or not commit.get("Doflow-Key"):
        return
    phase = commit.get("Doflow-Phase", "")
    name = f"{step.id}:{phase}" if phase else step.id
    made = {} if phase else {path: world.digest(path) for said in step.makes if (path := world.path(said))}
    record = Record(commit["Doflow-Key"], made=made, at=commit.get("at", ""))
    world.book.loose |= {name, step.id}
    world.put(step.id, record, {})
    world.put(name, record, {path: Artifact(digest, "agent", name) for path, digest in made.items()})


def _pending(world: World, name: str, entry: Mapping[str, Any]) -> None:
    """An agent had returned. Committed already: say so. Not yet: its step is not done, whatever the lock on disk says."""
    intent = world.book.intents.get(name)
    if intent is not None:
        from doflow.git import commit

        if commit.adopted(world.git, intent["base"], intent["new"]) and name in world.book.steps:
            record = world.book.steps[name]
            event = "phase_complete" if entry.get("phase") else "step_complete"
            where = {key: entry[key] for key in ("step", "phase") if key in entry}
            world.ledger.add(event, **where, record=record.plain(), commit=intent["new"], recovered=True)
            for told in (world.book.begun, world.book.returned, world.book.intents):
                told.pop(name, None)
            return
    world.book.steps.pop(name, None)
    if ":" in name:
        world.book.steps.pop(name.partition(":")[0], None)


def _watched(step: Step) -> bool:
    """A command whose files are compared, as `Job.watched` says it."""
    return step.repair > 0 or (step.kind == "shell" and (step.writes is not None or bool(step.protect)))


def _scope(world: World, name: str, entry: Mapping[str, Any]) -> Scope | None:
    step = world.step(entry["step"])
    if step is None or (step.kind not in BY_AGENT and not _watched(step)):
        return None
    from doflow.flow.markdown import Phase
    from doflow.guard.fence.scope import Scope
    from doflow.runs.job import Job
    from doflow.runs.state.fingerprint import Key

    phase = Phase(entry["phase"], "", "", 0) if entry.get("phase") else None
    everything = step.writes is None and (phase is not None or step.kind == "shell")
    writes = None if everything else tuple(step.writes or ())
    makes = () if phase else tuple(world.path(said) for said in step.makes)
    mends: frozenset[str] = frozenset()
    if phase and step.kind == "review":  # a fixer: it may change what is reviewed
        mends = frozenset(path for read in step.reads for path in world.place.expand(read.path))
        writes = None if world.reviews_code(step) else tuple(f"/{path}" for path in mends)
    return Scope(Job(step, Key("", {}, {}), makes, writes, phase, mends=mends), world)


def _unwatched(world: World, name: str, entry: Mapping[str, Any]) -> list[str]:
    """A killed command without a snapshot: its artifacts that are not what they were at its start."""
    left = _left(world, entry)
    if left:
        from doflow.guard import quarantine_outputs as aside

        aside.put(world, left, "left behind by a killed step", name)
    return left


def _left(world: World, entry: Mapping[str, Any]) -> list[str]:
    step = world.step(entry["step"])
    if step is None or step.kind in BY_AGENT or _watched(step):
        return []
    made = entry.get("makes", {}).items()
    return [path for path, digest in made if (now := world.digest(path)) and now != digest]
