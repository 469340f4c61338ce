"""Taking what a person wrote as a step's result: on request (`adopt`, --completed), or because it was found edited."""

from __future__ import annotations

from doflow.engine.jobs.commit import commit_lock, of_phases, written
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge, recorded_context as beside
from doflow.runs.state import event_log as ledger, fingerprint as keys
from doflow.runs.state.lockfile import Artifact, Record
from doflow.util.errors import UsageError
from doflow.util.records import replace


def take(world: World, name: str, why: str, commit: bool = True) -> tuple[str, ...]:
    """The step counts as done with its artifacts as they are now; gives their paths."""
    step = world.step(name)
    if step is None:
        known = ", ".join(found.id for found in world.flow.steps)
        raise UsageError(f"{world.flow.name} has no step {name} (it has: {known})", "doflow status")
    paths = tuple(world.path(said) for said in step.makes)
    missing = [path for path in paths if not world.digest(path)]
    if missing:
        raise UsageError(f"{name} cannot be taken as done: {', '.join(missing)} does not exist", world.again)
    world.put(name, _record(step, world), {path: Artifact(world.digest(path), "person", name) for path in paths})
    _phases(step, world)
    world.ledger.add("adopted", step=name, files=list(paths), message=why)
    if commit:
        kept = (path for path, digest in world.book.kept.items() if world.digest(path) == digest)
        also = (*report(step, world), *(path for path in kept if path not in paths))
        commit_lock(world, f"Keep {name} as it is: {', '.join(step.makes) or why}", (*paths, *also), name)
    return paths


def take_phase(world: World, step: Step, number: str, why: str) -> tuple[str, ...]:
    """One phase counts as done with its files as they are now; those that its agent had returned are committed with it."""
    name = f"{step.id}:{number}"
    keyed = judge.phase_keys(step, world)
    phase, key = next(found for found in keyed if found[0].number == number)
    held = world.book.returned.pop(name, {})
    world.put(name, Record(key.key, key.parts, {}, {}, "", {"agent": "person"}, ledger.now()), {})
    if all(f"{step.id}:{one.number}" in world.book.steps for one, _ in keyed):
        world.put(step.id, of_phases(keyed[-1][1].key, {"agent": "person"}, ledger.now()), {})
    paths = tuple(path for path in held.get("files", {}) if world.digest(path))
    world.ledger.add("adopted", step=step.id, phase=number, files=list(paths), message=why)
    commit_lock(world, f"Keep phase {number} as it is: {phase.title}", tuple(held.get("files", {})), step.id)
    return paths


def report(step: Step, world: World) -> tuple[str, ...]:
    """What a review has written down so far; a person may take it as it is, with all that is still open in it."""
    from doflow.flow import findings

    path = findings.file(world.run.dir, step.id) if step.kind == "review" else ""
    return (path,) if path and world.digest(path) else ()


def unknown(world: World, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Of the artifacts that carry a person's edit, those whose edit is not in the lock yet."""
    held = world.book.artifacts
    return tuple(path for path in paths if path not in held or held[path].digest != world.digest(path))


def notice(world: World, step: Step, paths: tuple[str, ...]) -> None:
    """A person edited an artifact of a step that is fresh: kept, recorded as theirs; what reads it runs again."""
    artifacts = {path: Artifact(world.digest(path), "person", step.id) for path in paths}
    record = world.book.steps.get(step.id)
    if step.routes and record is not None:  # a marker changed by hand leads elsewhere
        world.put(step.id, _routed(step, record, world), artifacts)
    world.book.artifacts.update(artifacts)
    names = ", ".join(paths)
    world.ledger.add("adopted", step=step.id, files=list(paths), message=f"{names} was edited by hand and is kept")
    commit_lock(world, f"Keep the edit of {names} by hand", paths, step.id)


def foresee(world: World) -> None:
    """For looking: routing steps lead where their artifacts lead now, as the next start would notice. Writes nothing."""
    for step in world.flow.steps if not world.frozen else ():
        record = world.book.steps.get(step.id)
        if step.routes and record is not None:
            verdict = judge.of_step(step, world)
            if verdict.fresh and unknown(world, verdict.edited):
                world.put(step.id, _routed(step, record, world), {})


def _routed(step: Step, record: Record, world: World) -> Record:
    """The record of a routing step whose artifact was edited; one that only its agent said is no part of the artifact."""
    found = _marker(step, world)
    return replace(record, marker=found, by={**record.by, "marker": "artifact"} if written(step, world) else record.by)


def _record(step: Step, world: World) -> Record:
    key: keys.Key = world.key(step)
    made = {path: world.digest(path) for said in step.makes if (path := world.path(said))}
    by = {**beside.described(step, world), "agent": "person"}
    by |= {"marker": "artifact"} if written(step, world) else {}
    return Record(key.key, key.parts, key.reads, made, _marker(step, world), by, ledger.now())


def _marker(step: Step, world: World) -> str:
    """Where a routing step leads: as its artifact says, else as its agent said. A review passes with what is open."""
    if step.kind == "review":
        return "CONDITIONAL adopted"
    held = world.book.steps.get(step.id)
    said = held.marker if held and held.by.get("marker") != "artifact" else ""  # what stood there and is gone is gone
    return written(step, world) or (said if any(route.when == said for route in step.routes) else "")


def _phases(step: Step, world: World) -> None:
    if step.kind != "implement":
        return
    key = ""
    for phase, found in judge.phase_keys(step, world):
        key = found.key
        record = Record(key, found.parts, {}, {}, "", {"agent": "person"}, ledger.now())
        world.put(f"{step.id}:{phase.number}", record, {})
    world.put(step.id, of_phases(key, {"agent": "person"}, ledger.now()), {})
