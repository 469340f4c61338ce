"""What the command line asks of a run: is all that it names there? Then what the person says is done is taken as done."""

from __future__ import annotations

from collections.abc import Callable

from doflow.flow.model import Step
from doflow.flow.parsing import limits
from doflow.git import repository as look
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state import lockfile as lock
from doflow.util.errors import DoflowError, UsageError, WorldError


def fit(world: World) -> None:
    """Raises if a step, a phase, an item, a limit or the run's own branch is not there; nothing is written yet."""
    if world.options.budget:
        limits.budget(world.options.budget)
    known = [step.id for step in world.flow.steps]
    for name in sorted(world.options.force | world.options.completed):
        step, _, part = name.partition(":")
        if step not in known:
            raise UsageError(f"{world.flow.name} has no step {name} (it has: {', '.join(known)})", "doit list --all")
        if part:
            _part(world, name, part)
    for name in sorted(world.options.completed):
        _finished(world, name)
    run = world.run
    if not run.fresh and run.branch != world.head.branch and not (world.run_dir / lock.NAME).exists():
        gone = run.branch not in look.branches(world.head)
        what = "does not exist any more" if gone else "is not checked out"
        hint = f'git switch {run.branch}   or start another run: doit {run.flow} --new --goal="…"'
        if gone:
            from doflow.runs import lost_runs_astray as astray

            hint = astray.anew(world)
        raise WorldError(f"run {run.name} lies on branch {run.branch}, which {what}", hint)


def complete(world: World, begin: Callable[[], None]) -> None:
    """--completed: the person says these are done; written down, so that the state does not lie."""
    from doflow.engine.jobs import adoption as adopting

    for name in sorted(world.options.completed):
        if not _fresh(world, name):
            begin()
            adopting.take(world, name, f"{name} is taken as done (--completed)")


def _part(world: World, name: str, part: str) -> None:
    """A phase or an item that is named must be one."""
    step = world.flow.step(name.partition(":")[0])
    assert step is not None
    parts = _parts(step, world)
    if parts is None:
        raise UsageError(f"{step.id} has no parts: there is no {name}", f"name the step alone: {step.id}")
    if part not in parts:
        there = f"it has: {', '.join(parts)}" if parts else "none is known yet"
        raise UsageError(f"{step.id} has no part {part} ({there})", "doit list --all")


def _parts(step: Step, world: World) -> list[str] | None:
    """The phases or items of a step as they are now; None if it is a step that has none."""
    if step.foreach:
        return [item.id.partition(":")[2] for item in world.items(step)]
    if step.kind != "implement":
        return None
    if world.run.fresh or not world.digest(world.phases(step)):
        return []
    try:
        return [phase.number for phase, _ in judge.phase_keys(step, world)]
    except DoflowError:
        return []


def _finished(world: World, name: str) -> None:
    """What is to be taken as done must be there."""
    step = world.step(name)
    if step is None:
        raise UsageError(f"{name} cannot be taken as done by itself", f"--completed={name.partition(':')[0]}")
    wanted = [world.phases(step)] if step.kind == "implement" else [world.path(said) for said in step.makes]
    missing = [path for path in wanted if not world.digest(path)]
    if missing:
        raise UsageError(
            f"{name} cannot be taken as done: {', '.join(missing)} does not exist",
            f"write it, or let its agent do it: {world.again} without --completed={name}",
        )


def _fresh(world: World, name: str) -> bool:
    step = world.step(name)
    if step is None or name not in world.book.steps:
        return False
    if step.kind == "implement":
        keyed = judge.phase_keys(step, world)
        return all(judge.of_phase(step, phase, key, world).fresh for phase, key in keyed)
    return step.kind == "gate" or judge.of_step(step, world).fresh
