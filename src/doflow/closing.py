"""The end of a run: what has no commit of its own is recorded, the end is told, the whole is stamped."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow import hot, lock
from doflow.errors import WorldError
from doflow.ledger import now
from doflow.project import Project
from doflow.settle import commit_lock, complete_group
from doflow.world import World


def complete(world: World, begun: bool) -> None:
    book = world.book
    if world.head.branch == world.run.branch:
        for step in world.flow.steps:  # over no items at all, or killed right after the last of them
            if step.foreach and step.id in world.order() and step.id not in book.steps:
                complete_group(world, step.id)
    loose = sorted(name for name in book.loose if name in book.steps)
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


def stamp(world: World, project: Project, environ: Mapping[str, str]) -> None:
    """Everything that the answer "nothing to do" rests on."""
    root = str(world.root)
    names = {os.path.join(root, path) for path in world.book.artifacts}
    for step in world.flow.steps:
        for read in (*step.reads, *step.needs):
            said = world.path(read.path)
            names |= {os.path.join(root, path) for path in world.place.expand(read.path)}
            if any(mark in said for mark in "*?["):
                names |= _folders(root, said)
    names |= {*project.sources, os.path.join(root, "dodo.py"), os.path.join(root, "doflow.yaml")}
    names |= {os.path.join(root, world.run.dir, name) for name in (lock.NAME, "input.md")}
    names |= _git_files(world) | {os.path.join(root, os.path.dirname(world.run.dir))}
    steps = [f"{world.flow.name}:{name}" for name in world.order()]
    values: dict[str, object] = {"goal": world.run.goal, "run": world.run.name, "steps": steps}
    hot.write(root, world.flow.name, values, names, dict(environ))


def _git_files(world: World) -> set[str]:
    head = world.head
    found = {os.path.join(head.git_dir, "HEAD"), os.path.join(head.common_dir, "packed-refs")}
    return found | ({os.path.join(head.common_dir, head.ref)} if head.ref else set())


def _folders(root: str, said: str) -> set[str]:
    """The folders in which a glob could find something new."""
    fixed = os.path.join(root, said.split("*")[0].split("?")[0].split("[")[0]).rsplit("/", 1)[0]
    return {folder for folder, _, _ in os.walk(fixed)} | {fixed}
