"""`doflow reject`: a person's no. The note is part of the step's key and of its next prompt."""

from __future__ import annotations

import argparse

from doflow.cli import decisions as deciding
from doflow.engine.lifecycle.session import Work
from doflow.engine.steps import gate
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state import fingerprint as keys
from doflow.util.errors import UsageError

ABOUT = "say no to a step's result, with a note: the next run lets its agent revise it"
EXAMPLES = """\
  doflow reject plan --note "too much at once: leave the mobile app out"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help="the step whose result you do not want")
    parser.add_argument("--note", required=True, help="what is wrong; the agent reads it")
    deciding.options(parser)


def reject(args: argparse.Namespace) -> int:
    note = args.note.strip()
    if not note:
        hint = f'doflow reject {args.step} --note "…"'
        raise UsageError("the note is empty: the agent would not know what to change", hint)
    with deciding.opened(args.run) as (desk, work):
        step = _step(work, args.step, note)
        world = work.world
        edited = judge.edited(step, world)
        desk.session.begin(work)
        held = _worded(step, note, world)
        world.book.notes[step.id] = held
        world.book.approvals.pop(step.id, None)
        world.ledger.add("rejected", step=step.id, note=held, by=deciding.decider(world))
        commit = deciding.kept(work, f"Reject {step.id}: {note}", (), step.id)
        deciding.closed(work, f"{step.id} was rejected: {note}")
        words = f"{step.id} is rejected; its agent reads your note when it is done again"
        told = f"{words}\n{_edit(step, edited, world)}go on with: {deciding.onward(world)}"
        return deciding.tell(args, told, run=world.run.name, step=step.id, rejected=True, note=held,
                             edited=list(edited), commit=commit)  # fmt: skip


def _step(work: Work, said: str, note: str) -> Step:
    world = work.world
    _phase(work, said)
    step = deciding.named(work, said)
    if step.kind == "gate":
        maker = gate.maker(step, world)
        hint = f'doflow reject {maker.id if maker else "STEP"} --note "{note}"'
        raise UsageError(f"{step.id} only asks; reject the step that made what it shows", hint)
    if step.kind in gate.NOTELESS:
        who = gate.NOTELESS[step.kind]
        hint = f"edit what it reads and run again, or do it anew: {deciding.onward(world)} --force={step.id}"
        hint = _instead(step, "", world) if step.kind == "implement" else hint
        raise UsageError(f"{step.id} {who}, which reads no note", hint)
    if not any(world.digest(world.path(made)) for made in step.makes):
        names = ", ".join(world.path(made) for made in step.makes) or "an artifact"
        raise UsageError(f"there is nothing to reject yet: {step.id} has not made {names}", deciding.onward(world))
    return step


def _phase(work: Work, said: str) -> None:
    """No agent of a phase reads a note: its section of the task list says what is to be done."""
    bare = said.removeprefix(f"{work.world.flow.name}:")
    name, _, number = bare.partition(":")
    step = work.world.flow.step(name)
    if number and step is not None and step.kind == "implement":
        raise UsageError(f"{bare} is a phase, and its agent reads no note", _instead(step, number, work.world))


def _instead(step: Step, number: str, world: World) -> str:
    what = "its tasks in " if number else ""
    return (
        f"edit {what}{world.phases(step)}, then: {deciding.onward(world)}   or   "
        f"doflow reset {step.id}:{number or 'N'}   lets it, and the phases after it, be done again"
    )


def _worded(step: Step, note: str, world: World) -> str:
    """The note; in other words if the last result was made with this very one, so that the step is stale again."""
    record = world.book.steps.get(step.id)
    used = record is not None and record.parts.get("note") == keys.short(note)
    return f"{note}\n\n(This was said before, and the result still does not do it.)" if used else note


def _edit(step: Step, edited: tuple[str, ...], world: World) -> str:
    if not edited:
        return ""
    go = deciding.onward(world)
    return (
        f"{', '.join(edited)} carries an edit by hand, so the next run pauses instead of changing it:\n"
        f"  {go} --force={step.id}   lets the agent revise it   or   doflow adopt {step.id}   keeps it as it is\n"
    )
