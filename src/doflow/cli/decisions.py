"""A person decides: the run is opened under the lock and made good, the decision written down and committed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from doflow.cli.context import Desk
from doflow.cli.report import next_command as advice
from doflow.config import project
from doflow.engine.doit import backend as state
from doflow.engine.jobs import commit as settle
from doflow.engine.lifecycle import recovery, start as intake
from doflow.engine.lifecycle.session import Work
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.git import branches as branch
from doflow.runs.context import World
from doflow.util.errors import UsageError


@contextmanager
def opened(run: str = "") -> Iterator[tuple[Desk, Work]]:
    """The run that is meant, under the run lock, as the next `doit FLOW` would find it. Nothing is begun yet."""
    desk = Desk()
    desk.session.quiet = True
    with desk.changing():
        work = desk.work(desk.run(run))
        if work.world.run.fresh:
            name = work.world.run.name
            raise UsageError(f"run {name} has nothing to decide here yet", _unbegun(work.world))
        intake.preflight(work.world, paying=False)
        work.back = recovery.recover(work.world, work.fence)
        yield desk, work


def _unbegun(world: World) -> str:
    if world.head.branch != world.run.branch:
        return f"git switch {world.run.branch}   if it is on that branch; doflow status"
    return f"doit {world.flow.name} --run={world.run.name}{world.wished}"


def kept(work: Work, subject: str, paths: tuple[str, ...] = (), step: str = "") -> str:
    """The lock written and committed, with the files that belong to the decision; safe to repeat."""
    return settle.commit_lock(work.world, subject, paths, step)


def closed(work: Work, reason: str) -> None:
    """The status that other programs poll: nobody works, and the same command goes on."""
    work.projection.finish("paused", reason)


def standing(world: World) -> str:
    """The status on disk ('' = none)."""
    try:
        return str(json.loads((world.state_dir / "pipeline-state.json").read_bytes())["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def decider(world: World) -> str:
    """The name that git knows the person by."""
    return branch.identity(world.head).partition(" <")[0]


def named(work: Work, said: str) -> Step:
    """A step as a person names it: `plan`, `tiny:plan`, `plan.gate`."""
    bare = said.removeprefix(f"{work.world.flow.name}:")
    for part in (".gate", ".clarify", ".route"):
        bare = bare.removesuffix(part)
    return Desk.step(work, bare)


def has_gate(step: Step, world: World) -> bool:
    return step.kind == "gate" or bool(plan.gate_text(step, world.settings))


def unremember(world: World, names: tuple[str, ...]) -> None:
    """doit's rows of these steps are taken away, also where somebody told doit to forget them."""
    path = world.root / project.STATE / "state.db"
    if path.exists():
        parts = ("", ".clarify", ".gate", ".route")
        backend = state.Backend(str(path), json)
        backend.drop(f"{world.flow.name}:{name}{part}" for name in names for part in parts)
        backend.dump()


def onward(world: World) -> str:
    """The command that goes on."""
    return advice.command(world)


def options(parser: argparse.ArgumentParser) -> None:
    """What every deciding command takes."""
    parser.add_argument("--run", default="", metavar="RUN", help="the run: its name or number (default: this branch's)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of words")


def tell(args: argparse.Namespace, words: str, **data: Any) -> int:
    """Say what happened, as words or as data."""
    from doflow.cli import output as commands

    if args.json:
        commands.say_json(data | {"message": words})
    else:
        commands.say(words)
    return 0
