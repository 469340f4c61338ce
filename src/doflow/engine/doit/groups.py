"""Groups that are filled late: the phases of a task list, the items of a `foreach`.

What is in such a group is known only when the file that lists it is there. Known members can be named before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from doit.task import DelayedLoader, Task

from doflow.engine.doit.task_types import IO, Deed, FlowTask, Fresh, ahead
from doflow.engine.lifecycle.session import Session, Work
from doflow.util.errors import DoflowError

if TYPE_CHECKING:
    from doflow.engine.doit.actions import Act, Judge
    from doflow.flow.model import Step
    from doflow.flow.plan import Node


class Member(NamedTuple):
    """One task of a group; `chained` = it waits for the one before it."""

    name: str
    doc: str
    act: Act
    judge: Judge
    chained: bool


def fill(session: Session, work: Work, node: Node) -> Iterator[Task]:
    """In a run: a delayed group, and placeholders for the members known now. Elsewhere: what is there now."""
    about = {"subtask_of": work.world.flow.name, "doc": node.doc}
    common: dict[str, Any] = {"io": IO, "verbosity": 2, **about}
    waits: dict[str, Any] = {"task_dep": list(node.deps), "calc_dep": [node.router] if node.router else []}

    def real() -> Iterator[Task]:
        before, names = list(waits["task_dep"]), []
        try:
            members = list(_members(session, work, node, looking=False))
        except DoflowError as error:
            yield _unreadable(session, work, node, common, waits, error)
            return
        for member in members:
            known = {**common, "subtask_of": node.name, "doc": member.doc}
            yield Task(member.name, [Deed(member.act)], uptodate=[Fresh(member.judge)], task_dep=before, **known)
            names.append(member.name)
            before = [member.name] if member.chained else before
        yield Task(node.name, None, task_dep=names or list(waits["task_dep"]), has_subtask=True, **about)

    if not session.executing:
        yield from real()
        return
    loader = DelayedLoader(real)
    loader.basename = node.name
    group = FlowTask(node.name, None, loader=loader, **about, **waits)
    group.ahead = ahead(work, node)
    yield group
    known: list[Member] = []
    with suppress(DoflowError):  # a file that cannot be read is told when its turn comes: it may be made anew before
        known = list(_members(session, work, node, looking=True))
    for member in known:
        yield Task(member.name, None, loader=loader, subtask_of=node.name, doc=member.doc,
                   task_dep=list(waits["task_dep"]))  # fmt: skip


def _unreadable(session: Session, work: Work, node: Node, common: Any, waits: Any, error: DoflowError) -> Task:
    """What the group is filled from cannot be read: a task that says so, as any step does that fails."""
    from doflow.engine.doit import actions

    def fail() -> object:
        return actions.broken(session, work, error)

    return Task(node.name, [Deed(fail)], task_dep=list(waits["task_dep"]), **common)


def _members(session: Session, work: Work, node: Node, looking: bool) -> Iterator[Member]:
    step = work.world.flow.step(node.step)
    assert step is not None
    if node.role == "each":
        yield from _items(session, work, node, step, looking)
    else:
        yield from _phases(session, work, node, step, looking)


def _phases(session: Session, work: Work, node: Node, step: Step, looking: bool) -> Iterator[Member]:
    from doflow.engine.doit import actions
    from doflow.engine.lifecycle import recovery
    from doflow.engine.steps import work_items as worklist
    from doflow.runs.freshness import freshness as judge

    world = work.world
    there = bool(world.digest(world.phases(step)))
    if not there and (looking or not session.executing):
        return
    if not looking and session.executing and not world.frozen:
        recovery.at_head(world, step)
    if trouble := None if looking else worklist.trouble(step, world):
        raise trouble
    phases = {phase.number: phase for phase, _ in judge.phase_keys(step, world)}
    for phase in phases.values():
        act, judged = actions.of_phase(session, work, step, phase.number)
        yield Member(f"{node.name}:{phase.number}", phase.title, act, judged, True)


def _items(session: Session, work: Work, node: Node, step: Step, looking: bool) -> Iterator[Member]:
    from doflow.engine.doit import actions

    items = work.world.items(step)
    if not items and not looking and session.executing:
        _nothing(session, work, step)
    for item in items:
        name = f"{work.world.flow.name}:{item.id}"
        act, judged = actions.of_item(session, work, item)
        yield Member(name, dict(item.params).get("item", ""), act, judged, False)


def _nothing(session: Session, work: Work, step: Step) -> None:
    """A list without items is said aloud: it may not be what was meant."""
    world = work.world
    path = world.path(step.foreach) if isinstance(step.foreach, str) else ""
    if world.frozen or not world.digest(path):
        return
    message = f"{path} lists no items: {step.id} has nothing to do"
    if work.begun:
        world.ledger.add("warning", step=step.id, message=message)
    elif step.id not in world.book.steps:
        session.warn(f"warning: {message}")
