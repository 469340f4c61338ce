"""`doflow reset`: a step, and what follows it, counts as not done. Artifacts stay; the next run revises them."""

from __future__ import annotations

import argparse
import sys

from doflow.cli import decisions as deciding
from doflow.cli.context import Desk
from doflow.engine.lifecycle.session import Work
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state.lockfile import Artifact
from doflow.util.errors import UsageError

ABOUT = "forget that a step (and what follows it) is done; its files stay, and the next run revises them"
EXAMPLES = """\
  doflow reset plan               the plan and all that comes after it
  doflow reset implement:2        from phase 2 on
  doflow reset plan.gate          only your yes: the gate asks again, nothing else is forgotten
  doflow reset --yes              the whole run, without asking
"""
_PAUSES = (".gate", ".clarify", ".route")


def arguments(parser: argparse.ArgumentParser) -> None:
    about = "the step, a phase and those after it (implement:2), an item, a gate (plan.gate); default: the whole run"
    parser.add_argument("step", nargs="?", default="", metavar="STEP", help=about)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    deciding.options(parser)


def reset(args: argparse.Namespace) -> int:
    with deciding.opened(args.run) as (desk, work):
        world = work.world
        if args.step.endswith(_PAUSES):
            return _asks_again(args, desk, work)
        first, phase = _meant(work, args.step)
        steps = _following(first.id, world) if first else tuple(step.id for step in world.flow.steps)
        names = _names(steps, first, phase, world)
        if not names and not any(name in world.book.approvals for name in steps):
            what = f"{args.step} and what follows it" if first else f"run {world.run.name}"
            told = f"nothing of {what} is done: there is nothing to forget"
            return deciding.tell(args, told, run=world.run.name, forgotten=[], commit="")
        if not args.yes:
            _agreed(names, args.step, world)
        desk.session.begin(work)
        _forget(names, steps, world)
        deciding.unremember(world, (*steps, *names))
        what = args.step or "everything"
        commit = deciding.kept(work, f"Forget {what}", (), first.id if first else "")
        deciding.closed(work, f"{what} was reset")
        words = f"{', '.join(names) or what}: not done any more; every file stays as it is"
        told = f"{words}\ngo on with: {deciding.onward(world)}"
        return deciding.tell(args, told, run=world.run.name, forgotten=list(names), commit=commit)


def _asks_again(args: argparse.Namespace, desk: Desk, work: Work) -> int:
    """Of a pause: the yes to a gate is taken back, and nothing but that."""
    world, step = work.world, deciding.named(work, args.step)
    part = args.step.rpartition(".")[2]
    if part != "gate":
        what = "answers stand in what it made" if part == "clarify" else "way follows from what it said"
        hint = f"doflow reset {step.id}   forgets the step itself, with all that follows it"
        raise UsageError(f"{args.step} has nothing of its own to forget: its {what}", hint)
    if not deciding.has_gate(step, world):
        gates = ", ".join(other.id for other in world.flow.steps if deciding.has_gate(other, world)) or "none"
        raise UsageError(f"{step.id} has no gate (steps with one: {gates})", f"doflow reset {step.id}")
    about = {"run": world.run.name, "forgotten": [f"{step.id}.gate"]}
    if step.id not in world.book.approvals:
        told = f"{step.id} is not approved: there is nothing to take back"
        return deciding.tell(args, told, **about | {"forgotten": []}, commit="")
    desk.session.begin(work)
    del world.book.approvals[step.id]
    world.ledger.add("reset", step=f"{step.id}.gate")
    commit = deciding.kept(work, f"Take back the approval of {step.id}", (), step.id)
    deciding.closed(work, f"the approval of {step.id} was taken back")
    words = f"the approval of {step.id} is taken back: its gate asks again; all steps stay done"
    words += " (auto_approve is on: the next run says yes to it)" if world.settings.auto_approve else ""
    return deciding.tell(args, f"{words}\ngo on with: {deciding.onward(world)}", **about, commit=commit)


def _meant(work: Work, said: str) -> tuple[Step | None, str]:
    """The step and the phase that are named; no step = the whole run."""
    if not said:
        return None, ""
    bare = said.removeprefix(f"{work.world.flow.name}:")
    name, _, phase = bare.partition(":")
    step = deciding.named(work, name)
    if phase:
        known = _parts(step, work.world)
        if phase not in known and f"{step.id}:{phase}" not in work.world.book.steps:
            raise UsageError(f"{step.id} has no part {phase} (it has: {', '.join(known) or 'none'})", "doflow status")
    return step, phase


def _parts(step: Step, world: World) -> list[str]:
    """The phases or the items of a step, in their order."""
    if step.foreach:
        return [item.id.partition(":")[2] for item in world.items(step)]
    return [found.number for found, _ in judge.phase_keys(step, world)] if step.kind == "implement" else []


def _following(name: str, world: World) -> tuple[str, ...]:
    """The step and every active step that comes after it, directly or not."""
    found = {name}
    for other in world.order():
        if found.intersection(world.before(other)):
            found.add(other)
    return tuple(step.id for step in world.flow.steps if step.id in found)


def _names(steps: tuple[str, ...], first: Step | None, phase: str, world: World) -> tuple[str, ...]:
    """What is written down of these steps and their phases."""
    book = world.book
    known = dict.fromkeys((*book.steps, *book.returned, *book.begun))
    spared: set[str] = set()
    if first is not None and phase:
        parts = _parts(first, world)
        before = parts[: parts.index(phase)] if phase in parts else parts
        spared = {f"{first.id}:{part}" for part in (parts if first.foreach else before) if part != phase}
    return tuple(name for name in known if name.partition(":")[0] in steps and name not in spared)


def _forget(names: tuple[str, ...], steps: tuple[str, ...], world: World) -> None:
    book = world.book
    for name in names:
        step, _, phase = name.partition(":")
        for path, digest in book.returned.get(name, {}).get("files", {}).items():
            if digest and digest == world.digest(path):
                book.artifacts.setdefault(path, Artifact(digest, "agent", name))
        world.ledger.add("reset", step=step, **({"phase": phase} if phase else {}))
        world.drop(name)
    told = {name.partition(":")[0] for name in names}
    for name in steps:
        if book.approvals.pop(name, None) and name not in told:
            world.ledger.add("reset", step=f"{name}.gate")
        found = world.flow.step(name)
        if found is not None and found.routes:
            book.variant = ""


def _agreed(names: tuple[str, ...], said: str, world: World) -> None:
    command = " ".join(word for word in ("doflow reset", said, f"--run={world.run.name} --yes") if word)
    if not sys.stdin.isatty():
        raise UsageError(f"this would forget {', '.join(names)} of run {world.run.name}", f"to do it: {command}")
    sys.stdout.write(f"Forget {', '.join(names)} of run {world.run.name}? The files stay. [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was forgotten", f"to do it without being asked: {command}")
