"""Options of a run: validate what they name, and mark the steps of --completed as done."""

from __future__ import annotations

from collections.abc import Callable

from doflow.engine.jobs import adoption
from doflow.flow.model import Step
from doflow.flow.parsing import syntax
from doflow.git import refs
from doflow.runs import freshness, lockfile, lost_runs, next_steps
from doflow.runs.context import RunContext
from doflow.util.errors import DoflowError, UsageError, WorldError
from doflow.util.hints import Next


def validate_options(context: RunContext) -> None:
    """Raise if a step, a phase, an item, a limit or the run's branch does not exist; writes nothing."""
    if context.options.budget:
        syntax.parse_budget(context.options.budget)
    known = [step.id for step in context.flow.steps]
    for name in sorted(context.options.force | context.options.completed):
        step, _, part = name.partition(":")
        if step not in known:
            raise UsageError(f"{context.flow.name} has no step {name} (it has: {', '.join(known)})", "doit list --all")
        if part:
            _part(context, name, part)
    for name in sorted(context.options.completed):
        _finished(context, name)
    run = context.run
    if not run.fresh and run.branch != context.head.branch and not (context.run_dir / lockfile.NAME).exists():
        gone = run.branch not in refs.branch_names(context.head)
        what = "no longer exists" if gone else "is not checked out"
        new = Next(("doit", run.flow, "--new", "--goal=…"), "start another run", link="or")
        steps = lost_runs.recovery_commands(context) if gone else (Next(("git", "switch", run.branch)), new)
        raise WorldError(f"run {run.name} is on branch {run.branch}, which {what}", steps=steps)


def adopt_completed(context: RunContext, begin: Callable[[], None]) -> None:
    """--completed: record these steps as done."""
    for name in sorted(context.options.completed):
        if not _fresh(context, name):
            begin()
            adoption.adopt_step(context, name, f"{name} marked as done (--completed)")


def _part(context: RunContext, name: str, part: str) -> None:
    """Raise if a phase or an item does not exist."""
    step = context.flow.step(name.partition(":")[0])
    assert step is not None
    parts = _parts(step, context)
    if parts is None:
        raise UsageError(f"{step.id} has no parts, so {name} does not exist", f"name the step alone: {step.id}")
    if part not in parts:
        there = f"it has: {', '.join(parts)}" if parts else "none is known yet"
        raise UsageError(f"{step.id} has no part {part} ({there})", "doit list --all")


def _parts(step: Step, context: RunContext) -> list[str] | None:
    """The current phases or items of a step; None if its kind has none."""
    if step.foreach:
        return [item.id.partition(":")[2] for item in context.items(step)]
    if step.kind != "implement":
        return None
    if context.run.fresh or not context.files.digest(context.phases(step)):
        return []
    try:
        return [phase.number for phase, _ in freshness.phase_keys(step, context)]
    except DoflowError:
        return []


def _finished(context: RunContext, name: str) -> None:
    """Raise if the artifacts of a step to mark as done do not exist."""
    step = context.step(name)
    if step is None:
        raise UsageError(f"{name} cannot be marked as done by itself", f"--completed={name.partition(':')[0]}")
    wanted = [context.phases(step)] if step.kind == "implement" else [context.files.path(said) for said in step.makes]
    missing = [path for path in wanted if not context.files.digest(path)]
    if missing:
        raise UsageError(
            f"{name} cannot be marked as done: missing {', '.join(missing)}",
            "write it",
            (
                next_steps.resume_now(
                    context, why="let its agent write it", does=f"without --completed={name}", link="or"
                ),
            ),
        )


def _fresh(context: RunContext, name: str) -> bool:
    step = context.step(name)
    if step is None or name not in context.record.steps:
        return False
    if step.kind == "implement":
        keyed = freshness.phase_keys(step, context)
        return all(freshness.phase_freshness(step, phase, key, context).fresh for phase, key in keyed)
    return step.kind == "gate" or freshness.step_freshness(step, context).fresh
