"""Adopting a user's files as the result of a step: on request (`adopt`, --completed), or because edits were found.

Also the check of what the options of a run name: steps, phases, items, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from doflow.engine import checks
from doflow.engine.jobs.commit import commit_lock, markers_in_artifact, phases_record
from doflow.flow import findings, markdown, task_lists
from doflow.flow.model import Step
from doflow.flow.parsing import syntax
from doflow.git import refs
from doflow.runs import fingerprint, freshness, lockfile, next_steps, run_history, task_list_files
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Artifact, StepRecord
from doflow.util import timestamps
from doflow.util.errors import DoflowError, UsageError, WorldError
from doflow.util.hints import Next


def adopt_step(context: RunContext, name: str, why: str, commit: bool = True) -> tuple[str, ...]:
    """Record the step as done with its current artifacts; returns their paths."""
    step = context.step(name)
    if step is None:
        known = ", ".join(found.id for found in context.flow.steps)
        raise UsageError(f"{context.flow.name} has no step {name} (it has: {known})", "doflow status")
    paths = tuple(context.files.path(said) for said in step.makes)
    missing = [path for path in paths if not context.files.digest(path)]
    if missing:
        message = f"{name} cannot be marked as done: missing {', '.join(missing)}"
        raise UsageError(message, steps=(next_steps.resume_now(context),))
    artifacts = {path: Artifact(context.files.digest(path), "person", name) for path in paths}
    context.complete(name, _record(step, context), artifacts)
    if step.kind == "implement":
        _complete_phases(step, context)
    context.events.add("adopted", step=name, files=list(paths), message=why)
    if commit:
        kept = (path for path, digest in context.record.held_files.items() if context.files.digest(path) == digest)
        also = (*review_report(step, context), *(path for path in kept if path not in paths))
        commit_lock(context, f"Adopt {name}: {', '.join(step.makes) or why}", (*paths, *also), name)
    return paths


def adopt_phase(context: RunContext, step: Step, number: str, why: str) -> tuple[str, ...]:
    """Record one phase as done with its current files; the files its agent returned are committed with it."""
    name = f"{step.id}:{number}"
    keyed = freshness.phase_keys(step, context)
    phase, key = next(found for found in keyed if found[0].number == number)
    held = context.record.discard_returned(name)
    context.complete(name, StepRecord(key.key, key.parts, {}, {}, "", {"agent": "person"}, timestamps.now()), {})
    if all(f"{step.id}:{one.number}" in context.record.steps for one, _ in keyed):
        context.complete(step.id, phases_record(keyed[-1][1].key, {"agent": "person"}, timestamps.now()), {})
    paths = tuple(path for path in held.get("files", {}) if context.files.digest(path))
    context.events.add("adopted", step=step.id, phase=number, files=list(paths), message=why)
    commit_lock(context, f"Adopt phase {number}: {phase.title}", tuple(held.get("files", {})), step.id)
    return paths


def review_report(step: Step, context: RunContext) -> tuple[str, ...]:
    """The report of a review so far; the user may adopt it with findings still open."""
    path = context.findings_path(step.id) if step.kind == "review" and context.given else ""
    return (path,) if path and context.files.digest(path) else ()


def unrecorded_edits(context: RunContext, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The edited artifacts whose edits are not in the lock file yet."""
    held = context.record.artifacts
    return tuple(path for path in paths if path not in held or held[path].digest != context.files.digest(path))


def record_edits(context: RunContext, step: Step, paths: tuple[str, ...]) -> None:
    """Record manual edits to the artifacts of an up-to-date step; steps that read them run again."""
    artifacts = {path: Artifact(context.files.digest(path), "person", step.id) for path in paths}
    record = context.record.steps.get(step.id)
    if step.routes and record is not None:  # an edited marker may change the route
        context.complete(step.id, _routed(step, record, context), artifacts)
    context.record.add_artifacts(artifacts)
    names = ", ".join(paths)
    context.events.add("adopted", step=step.id, files=list(paths), message=f"kept your edits to {names}")
    commit_lock(context, f"Keep manual edits to {names}", paths, step.id)


def preview_edits(context: RunContext) -> None:
    """Update routes from edited artifacts as the next run would, without writing anything."""
    for step in context.flow.steps if not context.frozen else ():
        record = context.record.steps.get(step.id)
        if step.routes and record is not None:
            verdict = freshness.step_freshness(step, context)
            if verdict.fresh and unrecorded_edits(context, verdict.edited):
                context.complete(step.id, _routed(step, record, context), {})


def _routed(step: Step, record: StepRecord, context: RunContext) -> StepRecord:
    """The record of a routing step whose artifact was edited; a marker from the agent's answer is not in the artifact."""
    by = {**record.by, "marker": "artifact"} if markers_in_artifact(step, context) else record.by
    return replace(record, marker=_marker(step, context), by=by)


def _record(step: Step, context: RunContext) -> StepRecord:
    key: fingerprint.Key = context.key(step)
    made = {path: context.files.digest(path) for path in map(context.files.path, step.makes)}
    by = {**freshness.current_settings(step, context), "agent": "person"}
    by |= {"marker": "artifact"} if markers_in_artifact(step, context) else {}
    by |= {"tasks": checks.lists_digest(step, context)} if step.check.tasks else {}
    return StepRecord(key.key, key.parts, key.reads, made, _marker(step, context), by, timestamps.now())


def _marker(step: Step, context: RunContext) -> str:
    """The marker of a routing step: from its artifact, else from its agent. A review passes with open findings."""
    if step.kind == "review":
        return findings.ReviewResult("CONDITIONAL", "adopted").marker
    found = markers_in_artifact(step, context)
    held = context.record.steps.get(step.id)
    if found or held is None or held.by.get("marker") == "artifact":  # removed from the artifact, it no longer counts
        return found[0] if len(found) == 1 else ""
    return held.marker if any(route.when == held.marker for route in step.routes) else ""


def _complete_phases(step: Step, context: RunContext) -> None:
    key = ""
    for phase, found in freshness.phase_keys(step, context):
        key = found.key
        record = StepRecord(key, found.parts, {}, {}, "", {"agent": "person"}, timestamps.now())
        context.complete(f"{step.id}:{phase.number}", record, {})
    context.complete(step.id, phases_record(key, {"agent": "person"}, timestamps.now()), {})


def validate_options(context: RunContext) -> None:
    """Raise if a step, a phase, an item, a limit or the run's branch does not exist; writes nothing."""
    if context.options.budget:
        syntax.parse_budget(context.options.budget)
    known = [step.id for step in context.flow.steps]
    if context.options.task:
        _check_task(context)
    for name in sorted(context.options.force | context.options.completed):
        step, _, part = name.partition(":")
        if step not in known:
            raise UsageError(f"{context.flow.name} has no step {name} (it has: {', '.join(known)})", "doit list --all")
        if part:
            _check_part(context, name, part)
    for name in sorted(context.options.completed):
        _check_artifacts(context, name)
    run = context.run
    if not run.fresh and run.branch != context.head.branch and not (context.run_dir / lockfile.NAME).exists():
        gone = run.branch not in refs.branch_names(context.head)
        what = "no longer exists" if gone else "is not checked out"
        new = Next(("doit", run.flow, "--new", "--goal=…"), "start another run", link="or")
        steps = run_history.recovery_commands(context) if gone else (Next(("git", "switch", run.branch)), new)
        raise WorldError(f"run {run.name} is on branch {run.branch}, which {what}", steps=steps)


def adopt_completed(context: RunContext, begin: Callable[[], None]) -> None:
    """--completed: record these steps as done."""
    for name in sorted(context.options.completed):
        if not _fresh(context, name):
            begin()
            adopt_step(context, name, f"{name} marked as done (--completed)")


def adopt_ticked_phases(context: RunContext, begin: Callable[[], None]) -> None:
    """Phases that the user had ticked before the first agent was called count as done, unless --redo names them; if that is
    all there is to do, there is nothing to review either.

    Only of a list that no step of the flow makes: an agent that ticks the boxes of another phase decides nothing.
    """
    made = {context.files.path(said) for step in context.flow.steps for said in step.makes}
    adopted = False
    for step in context.flow.steps:
        path = context.phases(step) if step.kind == "implement" else ""
        if not path or path in made or markdown.is_backlog(path) or _has_worked(step, context):
            continue
        phases = freshness.phase_keys(step, context, every=True)
        ticked = [
            (phase, key)
            for phase, key in phases
            if task_lists.is_ticked(phase.text, context.options.optional)
            and not {phase.number, phase.part_of} & context.options.redo
        ]
        if not ticked:
            continue
        begin()
        for phase, key in ticked:
            record = StepRecord(key.key, key.parts, {}, {}, "", {"agent": "person"}, timestamps.now())
            context.complete(f"{step.id}:{phase.number}", record, {})
            message = f"phase {phase.number} is ticked in {path}: taken as done (--redo={phase.number} does it)"
            context.events.add("adopted", step=step.id, phase=phase.number, files=[], message=message)
        if len(ticked) == len(phases):
            context.complete(step.id, phases_record(phases[-1][1].key, {"agent": "person"}, timestamps.now()), {})
        numbers = ", ".join(phase.number for phase, _ in ticked)
        commit_lock(context, f"Adopt finished phases of {path}: {numbers}", (path,), step.id)
        adopted = True
    left = [step for step in context.flow.steps if step.id not in context.record.steps]
    if adopted and all(step.kind == "review" for step in left):
        for step in left:
            adopt_step(context, step.id, f"{step.id}: no task was open, so there is nothing to review")


def _has_worked(step: Step, context: RunContext) -> bool:
    """Was an agent called for this step, or one of its phases recorded?"""
    names = (*context.record.steps, *context.record.returned, *context.record.started)
    return any(name.partition(":")[0] == step.id for name in names)


def _check_task(context: RunContext) -> None:
    """Raise if the task list does not exist yet, or does not have this task."""
    step = next((found for found in context.flow.steps if found.kind == "implement"), None)
    path = context.phases(step) if step else ""
    if not path or not context.files.digest(path):
        why = f"{path} does not exist yet" if path else "it has no implement step"
        raise UsageError(f"{context.flow.name} has no task {context.options.task}: {why}", "doflow status")
    task_list_files.find_task(path, context.files.text(path) or "", context.options.task)


def _check_part(context: RunContext, name: str, part: str) -> None:
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
        keyed = freshness.phase_keys(step, context)
        wholes = dict.fromkeys(phase.part_of for phase, _ in keyed if phase.part_of)
        return [*(phase.number for phase, _ in keyed), *wholes]
    except DoflowError:
        return []


def _check_artifacts(context: RunContext, name: str) -> None:
    """Raise if the artifacts of a step to mark as done do not exist."""
    step = context.step(name)
    if step is None:
        raise UsageError(f"{name} cannot be marked as done by itself", f"--completed={name.partition(':')[0]}")
    wanted = [context.phases(step)] if step.kind == "implement" else [context.files.path(said) for said in step.makes]
    missing = [path for path in wanted if not context.files.digest(path)]
    if missing:
        does = f"without --completed={name}"
        run = next_steps.resume_now(context, why="let its agent write it", does=does, link="or")
        raise UsageError(f"{name} cannot be marked as done: missing {', '.join(missing)}", "write it", (run,))


def _fresh(context: RunContext, name: str) -> bool:
    step = context.step(name)
    if step is None or name not in context.record.steps:
        return False
    if step.kind == "implement":
        return freshness.phases_are_fresh(step, context)
    return step.kind == "gate" or freshness.step_freshness(step, context).fresh
