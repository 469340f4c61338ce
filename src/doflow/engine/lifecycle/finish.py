"""The end of a run: commit what is not committed yet, log the end, write the up-to-date stamp."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.config import uptodate_stamp
from doflow.config.project import Project
from doflow.engine.jobs import adoption
from doflow.engine.jobs.commit import commit_lock, complete_group, phases_record
from doflow.flow.model import Step
from doflow.runs import catalogue, freshness, lockfile
from doflow.runs.context import RunContext
from doflow.util import globs
from doflow.util.errors import WorldError
from doflow.util.timestamps import now


def complete_run(context: RunContext, started: bool) -> None:
    book = context.record
    if context.head.branch == context.run.branch:
        for step in context.flow.steps:  # no items, or killed right after the last one
            if step.id in context.order.active() and step.id not in book.steps:
                _complete(context, step)
    loose = sorted(name for name in book.uncommitted if name in book.steps or name in book.approvals)
    loose = loose or sorted(context.own)[:1]
    ended = book.last_event.get("event", "pipeline_complete") == "pipeline_complete"
    if not started and not ended:  # killed while the end was being recorded
        loose = loose or ["the run"]
    if loose and context.head.branch == context.run.branch:
        names = ", ".join(loose[:3]) + (f" and {len(loose) - 3} more" if len(loose) > 3 else "")
        try:
            commit_lock(context, f"Record completion of {names}")
        except WorldError as error:
            context.events.add("warning", message=f"doflow.lock is written but not committed: {error.message}")
        book.mark_committed()
    end = {"flow": context.flow.name, "steps": len(context.order.active())}
    if started:
        context.events.add("pipeline_complete", **end)
    else:  # nothing to do: reported, not logged again
        context.listen({"event": "pipeline_complete", "at": now(), "run": context.run.name, **end})


def _complete(context: RunContext, step: Step) -> None:
    if step.foreach:
        complete_group(context, step.id)
    elif step.kind == "implement":  # its last phase was removed from the list before it ran
        keyed = freshness.phase_keys(step, context)
        if all(f"{step.id}:{phase.number}" in context.record.steps for phase, _ in keyed):
            context.complete(step.id, phases_record(keyed[-1][1].key, {}, now()), {})
            context.record.mark_uncommitted(step.id)


def is_up_to_date(context: RunContext) -> bool:
    """Is every active step up to date, without unrecorded edits?"""
    for name in context.order.active():
        step = context.flow.step(name)
        if step is None or step.kind == "gate":
            continue
        if step.kind == "implement":
            if not freshness.phases_are_fresh(step, context):
                return False
            continue
        for part in context.items(step) if step.foreach else (step,):
            verdict = freshness.step_freshness(part, context)
            if not verdict.fresh or adoption.unrecorded_edits(context, verdict.edited):
                return False
    return True


def write_stamp(context: RunContext, project: Project, environ: Mapping[str, str]) -> None:
    """Write the stamp over everything that "nothing to do" depends on."""
    if context.frozen or context.flow.varies or context.flow.in_sessions or not project.unchanged():
        return
    root = str(context.root)
    names = {os.path.join(root, path) for path in context.record.artifacts}
    for step in context.flow.steps:
        for read in (*step.reads, *step.needs):
            path = context.files.path(read.path)
            names |= {os.path.join(root, found) for found in context.files.expand(read.path)}
            if globs.is_pattern(path):  # also the folders in which it could match new files
                fixed = os.path.join(root, path.split("*")[0].split("?")[0]).rsplit("/", 1)[0]
                names |= {fixed, *(folder for folder, _, _ in os.walk(fixed))}
        lists = [step.phases, *step.phases_or] if step.phases else []
        lists += [step.foreach] if isinstance(step.foreach, str) else []
        names |= {os.path.join(root, context.files.path(listed)) for listed in lists}
    names |= {os.path.realpath(name) for name in names if os.path.islink(name)}
    names |= {*project.sources, os.path.join(root, "dodo.py"), os.path.join(root, "doflow.yaml")}
    names |= {os.path.join(root, context.run.dir, name) for name in (lockfile.NAME, context.input)}
    head = context.head
    names |= {os.path.join(head.git_dir, "HEAD"), os.path.join(head.common_dir, "packed-refs")}
    names |= {os.path.join(head.common_dir, head.ref)} if head.ref else set()
    names.add(os.path.join(root, os.path.dirname(context.run.dir)))
    goal = context.run.goal if catalogue.digest(context.run.goal) == context.run.goal_digest else None
    values: dict[str, object] = {"goal": goal, "run": context.run.name, "steps": _tasks(context)}
    values |= {"usual": _usual(context), "count": len(context.order.active())}
    seen = uptodate_stamp.file_signatures(names)
    if is_up_to_date(context):  # checked after listing the files: a later edit shows in one of the two
        uptodate_stamp.write_stamp(root, context.flow.name, values, seen, dict(environ))


def _tasks(context: RunContext) -> list[str]:
    """The doit tasks of all active steps in order."""
    found: dict[str, list[str]] = {name: [] for name in context.order.active()}
    for node in context.plan.nodes:
        step = context.flow.step(node.step)
        if step is None or step.id not in found:
            continue
        if node.role == "phases":
            found[step.id] += [f"{node.name}:{phase.number}" for phase, _ in freshness.phase_keys(step, context)]
        elif node.role == "each":
            found[step.id] += [f"{context.flow.name}:{item.id}" for item in context.items(step)]
        else:
            found[step.id].append(node.name)
    return [task for tasks in found.values() for task in tasks]


def _usual(context: RunContext) -> bool:
    """Does a command without --run select this run?"""
    known = catalogue.list_runs(context.root, os.path.dirname(context.run.dir))
    runs = [run for run in known if run.flow == context.flow.name]
    here = [run.name for run in runs if run.branch == context.head.branch]
    return here[-1:] == [context.run.name] or [run.name for run in runs] == [context.run.name]
