"""The end of a run: what has no commit of its own is recorded, the end is told, the whole is stamped."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.config import uptodate_stamp as hot
from doflow.config.project import Project
from doflow.engine.jobs import adoption as adopting
from doflow.engine.jobs.commit import commit_lock, complete_group, of_phases
from doflow.flow.model import Step
from doflow.runs import catalogue as runs
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state import lockfile as lock
from doflow.util.errors import WorldError
from doflow.util.timestamps import now


def complete(world: World, begun: bool) -> None:
    book = world.book
    if world.head.branch == world.run.branch:
        for step in world.flow.steps:  # over no items at all, or killed right after the last of them
            if step.id in world.order() and step.id not in book.steps:
                _complete(world, step)
    loose = sorted(name for name in book.loose if name in book.steps or name in book.approvals) or sorted(world.own)[:1]
    ended = book.last.get("event", "pipeline_complete") == "pipeline_complete"
    if not begun and not ended:  # killed while its end was being recorded
        loose = loose or ["the end"]
    if loose and world.head.branch == world.run.branch:
        names = ", ".join(loose[:3]) + (f" and {len(loose) - 3} more" if len(loose) > 3 else "")
        try:
            commit_lock(world, f"Record {names}")
        except WorldError as error:
            world.ledger.add("warning", message=f"the lock is written but not committed: {error.message}")
        book.loose.clear()
    end = {"flow": world.flow.name, "steps": len(world.order())}
    if begun:
        world.ledger.add("pipeline_complete", **end)
    else:  # nothing was to be done: told, not written down again
        world.listen({"event": "pipeline_complete", "at": now(), "run": world.run.name, **end})


def _complete(world: World, step: Step) -> None:
    if step.foreach:
        complete_group(world, step.id)
    elif step.kind == "implement":  # its last phase was taken out of the list before it was done
        keyed = judge.phase_keys(step, world)
        if all(f"{step.id}:{phase.number}" in world.book.steps for phase, _ in keyed):
            world.put(step.id, of_phases(keyed[-1][1].key, {}, now()), {})
            world.book.loose.add(step.id)


def fresh(world: World) -> bool:
    """Is every active step up to date as things are now, with no edit that is not recorded yet?"""
    for name in world.order():
        step = world.flow.step(name)
        if step is None or step.kind == "gate":
            continue
        parts = world.items(step) if step.foreach else (step,)
        if step.kind == "implement":
            keyed = judge.phase_keys(step, world)
            if any(not judge.of_phase(step, phase, key, world).fresh for phase, key in keyed):
                return False
            continue
        for part in parts:
            verdict = judge.of_step(part, world)
            if not verdict.fresh or adopting.unknown(world, verdict.edited):
                return False
    return True


def stamp(world: World, project: Project, environ: Mapping[str, str]) -> None:
    """Everything that the answer "nothing to do" rests on."""
    if world.frozen or world.flow.varies or world.flow.in_sessions or not project.unchanged():
        return
    root = str(world.root)
    names = {os.path.join(root, path) for path in world.book.artifacts}
    for step in world.flow.steps:
        for read in (*step.reads, *step.needs):
            said = world.path(read.path)
            names |= {os.path.join(root, path) for path in world.place.expand(read.path)}
            if any(mark in said for mark in "*?["):
                names |= _folders(root, said)
        lists = [*((step.phases, *step.phases_or) if step.phases else ())]
        lists += [step.foreach] if isinstance(step.foreach, str) else []
        names |= {os.path.join(root, world.path(said)) for said in lists}
    names |= {os.path.realpath(name) for name in names if os.path.islink(name)}
    names |= {*project.sources, os.path.join(root, "dodo.py"), os.path.join(root, "doflow.yaml")}
    names |= {os.path.join(root, world.run.dir, name) for name in (lock.NAME, world.input)}
    names |= _git_files(world) | {os.path.join(root, os.path.dirname(world.run.dir))}
    steps = _tasks(world)
    goal = world.run.goal if runs.digest(world.run.goal) == world.run.goal_digest else None
    values: dict[str, object] = {"goal": goal, "run": world.run.name, "steps": steps, "usual": _usual(world)}
    values["count"] = len(world.order())
    seen = hot.look(names)
    if fresh(world):  # looked at after the files were listed: an edit since then shows in one or the other
        hot.write(root, world.flow.name, values, seen, dict(environ))


def _tasks(world: World) -> list[str]:
    """The doit tasks of all active steps in their order, as a run names them that finds them up to date."""
    found: dict[str, list[str]] = {name: [] for name in world.order()}
    for node in world.plan.nodes:
        step = world.flow.step(node.step)
        if step is None or step.id not in found:
            continue
        if node.role == "phases":
            found[step.id] += [f"{node.name}:{phase.number}" for phase, _ in judge.phase_keys(step, world)]
        elif node.role == "each":
            found[step.id] += [f"{world.flow.name}:{item.id}" for item in world.items(step)]
        else:
            found[step.id].append(node.name)
    return [task for tasks in found.values() for task in tasks]


def _usual(world: World) -> bool:
    """Would a command that names no run mean this one?"""
    mine = [run for run in runs.known(world.root, os.path.dirname(world.run.dir)) if run.flow == world.flow.name]
    here = [run.name for run in mine if run.branch == world.head.branch]
    return (here[-1] if here else "") == world.run.name or [run.name for run in mine] == [world.run.name]


def _git_files(world: World) -> set[str]:
    head = world.head
    found = {os.path.join(head.git_dir, "HEAD"), os.path.join(head.common_dir, "packed-refs")}
    return found | ({os.path.join(head.common_dir, head.ref)} if head.ref else set())


def _folders(root: str, said: str) -> set[str]:
    """The folders in which a glob could find something new."""
    fixed = os.path.join(root, said.split("*")[0].split("?")[0].split("[")[0]).rsplit("/", 1)[0]
    return {folder for folder, _, _ in os.walk(fixed)} | {fixed}
