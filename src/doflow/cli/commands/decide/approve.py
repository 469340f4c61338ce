"""`doflow approve`: a person's yes to what a gate shows, bound to exactly those bytes."""

from __future__ import annotations

import argparse

from doflow.cli import decisions as deciding
from doflow.cli.report import step_status as outlook
from doflow.engine.lifecycle.session import Work
from doflow.engine.steps import gate
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.state import event_log as ledger
from doflow.runs.state.lockfile import Approval
from doflow.util.errors import UsageError

ABOUT = "say yes at a gate: the run goes on past it, as long as what you saw stays as it is"
EXAMPLES = """\
  doflow approve                  the gate that waits
  doflow approve plan             the gate of this step
  doflow approve plan --note "good, mind the deadline"
"""
_DECIDABLE = outlook.SETTLED | {"asks"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", nargs="?", default="", metavar="STEP", help="the step (default: the one that waits)")
    parser.add_argument("--note", default="", help="kept with the approval, in the lock")
    deciding.options(parser)


def approve(args: argparse.Namespace) -> int:
    with deciding.opened(args.run) as (desk, work):
        step = _step(work, args.step)
        world = work.world
        seen = gate.shown(step, world)
        held = world.book.approvals.get(step.id)
        again = held is not None and held.digest == seen
        desk.session.begin(work)
        was = deciding.standing(world)
        if held is None or not again:
            held = Approval(seen, deciding.decider(world), args.note, ledger.now())
            world.book.approvals[step.id] = held
            world.ledger.add("approved", step=step.id, shown=seen, by=held.by, note=held.note)
        commit = deciding.kept(work, f"Approve {step.id}", _paths(step, world), step.id)
        if was != "completed":
            deciding.closed(work, f"{step.id} is approved")
        words = f"{step.id} is approved already, by {held.by} at {held.at}" if again else f"{step.id} is approved"
        told = f"{words}{_shown(step, world)}\ngo on with: {deciding.onward(world)}"
        return deciding.tell(args, told, run=world.run.name, step=step.id, approved=True, again=again, by=held.by,
                             note=held.note, commit=commit)  # fmt: skip


def _step(work: Work, said: str) -> Step:
    """The step whose gate is meant, if it can be decided now."""
    world = work.world
    if not said:
        return _waiting(world)
    step = deciding.named(work, said)
    if not deciding.has_gate(step, world):
        gates = ", ".join(other.id for other in world.flow.steps if deciding.has_gate(other, world)) or "none"
        hint = f"`gate: Approve it?` on the step in {world.flow.file or 'the flow'} makes one"
        raise UsageError(f"{step.id} has no gate (steps with one: {gates})", hint)
    if step.id not in world.order():
        raise UsageError(f"{step.id} is not part of this run (its steps: {', '.join(world.order())})", "doflow status")
    lines = outlook.of(world)
    if any(line.step == step.id and line.state not in _DECIDABLE for line in lines):
        ahead = next(line for line in lines if line.state not in outlook.SETTLED)
        words = f"{ahead.name}: {'; '.join(ahead.reasons)}"
        raise UsageError(f"the gate of {step.id} has not been reached ({words})", deciding.onward(world))
    return step


def _waiting(world: World) -> Step:
    asked = [line.step for line in outlook.of(world) if line.role == "gate" and line.state == "asks"]
    found = [step for name in asked if (step := world.flow.step(name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several gates wait: {', '.join(asked)}; which one?", f"doflow approve {found[0].id}")
    raise UsageError(f"no gate of run {world.run.name} waits for you", f"{deciding.onward(world)}   or   doflow status")


def _paths(step: Step, world: World) -> tuple[str, ...]:
    """What was approved is committed with the yes: an edit by hand too."""
    return tuple(path for said in step.makes if world.digest(path := world.path(said)))


def _shown(step: Step, world: World) -> str:
    paths = gate.files(step, world)
    return f": {paths}" if paths else ""
