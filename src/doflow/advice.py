"""What a run waits for, and the exact command that goes on with it."""

from __future__ import annotations

import os
import shlex

from doflow import runs
from doflow.light import dataclass
from doflow.outlook import SETTLED, Line, away
from doflow.world import World


@dataclass(frozen=True, slots=True)
class Advice:
    """What a run waits for, and the command that goes on ('' = nothing to do)."""

    waits: str
    command: str


def of(world: World, lines: tuple[Line, ...], held: bool) -> Advice:
    go = command(world)
    if held and any(line.state == "running" for line in lines):
        return Advice("a run works on it now", "")
    asked = next((line for line in lines if line.state == "asks"), None)
    if asked is not None:
        return _asked(asked, world, go)
    if all(line.state == "done" for line in lines):
        return Advice("", "")
    last = world.book.last
    if last.get("event") in ("paused", "rate_limited", "error") and last.get("message"):
        until = f" (try again at {last['resumeAt']})" if last.get("resumeAt") else ""
        return Advice(f"{last['message']}{until}", str(last.get("hint") or go))
    waiting = next((line for line in lines if line.state not in SETTLED), None)
    if waiting is None:
        return Advice("an edit by hand is not recorded yet", go)
    if waiting.state == "stale" and waiting.edited:
        hint = f"doflow adopt {waiting.step}   or   {go} --force={waiting.step}"
        return Advice(f"{waiting.name} is stale and {', '.join(waiting.edited)} carries an edit by hand", hint)
    return Advice(f"{waiting.name}: {'; '.join(waiting.reasons)}", go)


def command(world: World) -> str:
    """The command that goes on with exactly this run."""
    run = world.run
    known = runs.known(world.root, os.path.dirname(run.dir) or "specs")
    same = [other.name for other in known if other.flow == run.flow and other.branch == run.branch]
    which = "" if same[-1:] in ([run.name], []) else f" --run={run.name}"
    there = away(world) or not run.fresh
    switch = (
        f"git switch {shlex.quote(run.branch)} && " if there and run.branch and run.branch != world.head.branch else ""
    )
    return f"{switch}doit {run.flow}{which}"


def _asked(line: Line, world: World, go: str) -> Advice:
    if line.role == "gate":
        step = world.flow.step(line.step)
        paths = ", ".join(world.path(said) for said in step.makes) if step else ""
        words = f"{line.reasons[0]} ({paths})" if paths else line.reasons[0]
        return Advice(words, f"doflow approve {line.step}   or   doflow reject {line.step} --note '…'   then: {go}")
    if line.role == "clarify":
        asked = "".join(f"\n  {number}. {words}" for number, words in enumerate(line.reasons, 1))
        return Advice(f"{line.step} asks:{asked}", f"doflow answer   then: {go}")
    return Advice(line.reasons[0], f"{go} --force={line.step}   asks again")
