"""`doflow adopt`: what is there counts as the step's result, as if its agent had made it."""

from __future__ import annotations

import argparse

from doflow.cli import decisions as deciding
from doflow.cli.context import Desk
from doflow.cli.report import step_status as outlook
from doflow.engine.checks import registry as checks
from doflow.engine.jobs import adoption as adopting, commit as settle
from doflow.engine.lifecycle.session import Work
from doflow.flow.model import Step
from doflow.guard.quarantine import Quarantine
from doflow.runs.context import STATE, World
from doflow.runs.freshness import freshness as judge
from doflow.util.errors import UsageError

ABOUT = "keep what is there as a step's result: your edit, a file of your own, or what a refused step had made"
EXAMPLES = """\
  doflow adopt plan               plan.md stays as you wrote it; the step is done
  doflow adopt implement:2        one phase, with its files as they are now
  doflow adopt test --anyway      count a step as done that makes no file, or breaks its contract
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help="the step that is to count as done")
    parser.add_argument("--anyway", action="store_true", help="even if its contract does not hold")
    deciding.options(parser)


def adopt(args: argparse.Namespace) -> int:
    with deciding.opened(args.run) as (desk, work):
        world = work.world
        if work.back:
            _not_what_was_seen(work, args.step)
        phase = _phase(work, args.step)
        if phase is not None:
            return _one(args, desk, work, *phase)
        step = _step(work, args.step, args.anyway)
        if _settled(step, world):
            told = f"{step.id} is up to date and nothing was edited: there is nothing to adopt"
            return deciding.tell(args, told, run=world.run.name, step=step.id, adopted=[])
        if not args.anyway:
            _contract(step, world)
        undone = _undone(step, world)
        desk.session.begin(work)
        paths = adopting.take(world, step.id, "kept as it is, by a person (adopt)")
        deciding.unremember(world, (step.id,))
        deciding.closed(work, f"{step.id} is kept as it is")
        what = ", ".join((*paths, *adopting.report(step, world))) or undone or "it makes no file"
        told = f"{step.id} is done as it is: {what}\ngo on with: {deciding.onward(world)}"
        return deciding.tell(args, told, run=world.run.name, step=step.id, adopted=list(paths))


def _not_what_was_seen(work: Work, said: str) -> None:
    """A killed agent's half-made text was there when this was typed, and is put aside just now: that is not taken."""
    world, step = work.world, deciding.named(work, said.partition(":")[0] if _phase(work, said) else said)
    aside = [path for said in step.makes if (path := world.path(said)) in work.back]
    made = [path for path in aside if world.digest(path)]
    begun = any(entry["step"] == step.id for entry in world.book.begun.values())
    if not aside and (step.makes or not begun):
        return
    if aside and not made:
        raise _half_written(work, step, aside)
    what = f"{', '.join(made)} is as before" if made else "the files are as before"
    raise UsageError(
        f"{step.id} was killed at work; what its agent had left is put aside, and {what}: nothing is adopted",
        f"{deciding.onward(world)}   does the step   or   doflow quarantine list   shows what was left   "
        f"or   doflow adopt {said}   once more, to keep what is there now",
    )


def _half_written(work: Work, step: Step, aside: list[str]) -> UsageError:
    """Nothing was there before: what the agent had begun to write can be had again, and then be taken."""
    world = work.world
    kept = Quarantine(world.root / STATE / "quarantine").entries()
    ids = [one.id[:8] for path in aside for one in kept[::-1] if one.path == path][:1]
    back = " && ".join(f"doflow quarantine restore {one}" for one in ids) or "doflow quarantine list"
    return UsageError(
        f"{step.id} was killed at work; {', '.join(aside)}, as far as its agent had written it, is put aside: "
        "nothing is adopted",
        f"{deciding.onward(world)}   does the step   or   {back}   brings it back; then: doflow adopt {step.id}",
    )


def _phase(work: Work, said: str) -> tuple[Step, str] | None:
    """A phase as a person names it: `implement:2`."""
    bare, _, number = said.removeprefix(f"{work.world.flow.name}:").partition(":")
    step = work.world.flow.step(bare)
    if not number or step is None or step.kind != "implement":
        return None
    known = [phase.number for phase, _ in judge.phase_keys(step, work.world)]
    if number not in known:
        raise UsageError(f"{step.id} has no phase {number} (it has: {', '.join(known) or 'none'})", "doflow status")
    return step, number


def _one(args: argparse.Namespace, desk: Desk, work: Work, step: Step, number: str) -> int:
    world, name = work.world, f"{step.id}:{number}"
    line = next(line for line in outlook.of(world) if line.name == name)
    if not line.reasons:
        told = f"{name} is up to date: there is nothing to adopt"
        return deciding.tell(args, told, run=world.run.name, step=name, adopted=[])
    if name not in world.book.returned and not args.anyway:
        hint = f"doflow adopt {name} --anyway   counts it as done"
        raise UsageError(f"no agent has done {name} yet, so there is nothing to keep", hint)
    desk.session.begin(work)
    paths = adopting.take_phase(world, step, number, "kept as it is, by a person (adopt)")
    deciding.unremember(world, (name,))
    deciding.closed(work, f"{name} is kept as it is")
    told = f"{name} is done as it is: {', '.join(paths) or 'no file'}\ngo on with: {deciding.onward(world)}"
    return deciding.tell(args, told, run=world.run.name, step=name, adopted=list(paths))


def _undone(step: Step, world: World) -> str:
    """The phases that count as done although nobody did them."""
    names = [f"{step.id}:{phase.number}" for phase, _ in judge.phase_keys(step, world)] if step.phases else []
    left = [name for name in names if name not in world.book.steps]
    return f"{', '.join(left)} count as done and were not done" if left else ""


def _step(work: Work, said: str, anyway: bool) -> Step:
    step = deciding.named(work, said)
    if step.kind == "gate":
        raise UsageError(f"{step.id} is a gate: it makes nothing that could be kept", f"doflow approve {step.id}")
    if not step.makes and not anyway and not adopting.report(step, work.world):
        undone = _undone(step, work.world)
        hint = f"doflow adopt {step.id} --anyway   counts it as done" + (f" ({undone})" if undone else "")
        hint += f"; one phase alone: doflow adopt {step.id}:N" if step.phases else ""
        raise UsageError(f"{step.id} makes no file, so there is nothing to look at", hint)
    return step


def _settled(step: Step, world: World) -> bool:
    lines = [line for line in outlook.of(world) if step.id in (line.step, line.name) and line.role in outlook.WORK]
    return bool(lines) and not any(line.reasons or line.edited for line in lines)


def _contract(step: Step, world: World) -> None:
    paths = tuple(world.path(said) for said in step.makes)
    trouble = checks.problems(step, paths, world)
    wanted = tuple(route.when for route in step.routes)
    if not trouble and wanted and not settle.written(step, world):
        record = world.book.steps.get(step.id)
        if record is None or record.marker not in wanted:
            trouble = f"none of the lines {', '.join(f'`{when}`' for when in wanted)} stands in {', '.join(paths)}"
    if trouble:
        missing = [path for path in paths if not world.digest(path)]
        hint = f"mend it and repeat, or take it as it is: doflow adopt {step.id} --anyway"
        hint = f"write {missing[0]} and repeat, or let it be made: {world.again}" if missing else hint
        raise UsageError(f"{step.id} does not keep its contract: {trouble}", hint)
