"""What a run waits for, and the exact command that goes on with it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from doflow.cli.report.step_status import FAULT, SETTLED, Line, away
from doflow.engine.steps import gate
from doflow.flow import plan
from doflow.git import repository as look
from doflow.runs import catalogue as runs
from doflow.runs.context import World
from doflow.runs.state import event_log as ledger
from doflow.util.records import dataclass

_VERBS = ("approve", "reject", "answer", "adopt", "reset", "logs", "why")
_PAUSES = ("gate", "clarify")
_GOES_ON = frozenset({
    "step_starting", "phase_starting", "step_complete", "phase_complete", "adopted", "approved", "rejected", "answered",
    "reset", "forced", "pipeline_complete",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    """What a run waits for, and the command that goes on ('' = nothing to do)."""

    waits: str
    command: str


def of(world: World, lines: tuple[Line, ...], held: bool, failed: bool = False) -> Advice:
    """`failed`: the status says so; then its error comes before what else there is to do."""
    if held and any(line.state == "running" for line in lines):
        return Advice("a run works on it now", "")
    if away(world) and world.run.branch not in look.branches(world.head) and not world.frozen:
        from doflow.runs import lost_runs_astray as astray

        return Advice(astray.words(world), astray.anew(world))
    ended = _ended(world, lines, failed)
    if failed and ended is not None:
        return ended
    asked = [line for line in lines if line.state == "asks"]
    if asked:
        return _together(asked, world)
    if all(line.state in (SETTLED if world.frozen else ("done",)) for line in lines):
        return Advice("", "")
    go = command(world)
    waiting = next((line for line in lines if line.state not in SETTLED), None)
    if ended is not None:
        return ended
    if waiting is None:
        return Advice("an edit by hand is not recorded yet", go)
    if waiting.state == "stale" and waiting.edited:
        hint = f"{decide(world, 'adopt', waiting.step)}   or   {go} --force={waiting.step}"
        return Advice(f"{waiting.name} is stale and {', '.join(waiting.edited)} carries an edit by hand", hint)
    return Advice(f"{waiting.name}: {'; '.join(waiting.reasons)}", go)


def command(world: World) -> str:
    """The command that goes on with exactly this run: on its branch; where that is gone, on the one that is here."""
    switch, which = _where(world)
    return f"{switch}doit {world.run.flow}{which}{_reopened(world)}{world.wished}"


def reopening(world: World) -> str:
    """The command that takes up a finished run where we are."""
    return f"doit {world.run.flow} --run={world.run.name} --reopen{world.wished}"


def decide(world: World, verb: str, words: str = "") -> str:
    """The command of doflow that decides something about exactly this run."""
    switch, which = _where(world)
    first = f"{command(world)}   and then   " if _reopened(world) else switch
    return f"{first}doflow {verb}{f' {words}' if words else ''}{which}"


def _where(world: World) -> tuple[str, str]:
    """What stands before and behind a command so that it means this run: its branch, its name."""
    run = world.run
    known = runs.known(world.root, os.path.dirname(run.dir) or "specs")
    same = [other.name for other in known if other.flow == run.flow and other.branch == run.branch]
    which = "" if same[-1:] in ([run.name], []) else f" --run={run.name}"
    there = away(world) or not run.fresh
    elsewhere = there and run.branch and run.branch != world.head.branch
    if elsewhere and _reopened(world):
        return "", f" --run={run.name}"
    return f"git switch {shlex.quote(run.branch)} && " if elsewhere else "", which


def _reopened(world: World) -> str:
    """What a run needs that goes on without its branch: merged, say, and the branch deleted since."""
    run, head = world.run, world.head
    if run.fresh or not run.branch or run.branch == head.branch or away(world) or run.branch in look.branches(head):
        return ""
    return " --reopen"


def _ended(world: World, lines: tuple[Line, ...], failed: bool) -> Advice | None:
    """How the last work on it ended, if it did not end well and nobody has gone on from there since."""
    settled = {line.name for line in lines if line.state in SETTLED}
    ends = [(name, end) for name, end in _ends(world) if name not in settled]
    wanted = [(name, end) for name, end in ends if end["event"] == "error"] if failed else ends[-1:]
    if not wanted:
        return None
    name, end = wanted[-1]
    words, hint, until = str(end["message"]), str(end.get("hint") or ""), str(end.get("resumeAt") or "")
    words = words if not name or name in words else f"{name}: {words}"
    hint = _aimed(hint, world)
    words += f" (try again at {until})" if until and until not in words + hint else ""
    if "doit " not in hint:
        hint = f"{hint}   then: {command(world)}" if hint else command(world)
    return Advice(words, hint)


def _ends(world: World) -> list[tuple[str, Mapping[str, Any]]]:
    """The ends short of success, in order, without those of steps that were begun, done or decided since."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in ledger.read(world.state_dir / "events.jsonl"):
        name = ":".join(part for part in (entry.get("step", ""), entry.get("phase", "")) if part)
        if entry["event"] in _GOES_ON:
            found.pop(name, None)
            found.pop("", None)
        if entry["event"] in ("paused", "rate_limited", "error") and entry.get("message"):
            found.pop(name, None)
            found[name] = entry
    return list(found.items())


def _aimed(hint: str, world: World) -> str:
    """A hint that was written down while the run's branch was checked out, for where we are now."""
    import re

    switch, which = _where(world)
    reopened = _reopened(world)
    flow = re.escape(world.run.flow)
    hint = re.sub(rf"\bdoit {flow}(?![\w-])", lambda found: f"{switch}{found[0]}{which}{reopened}", hint)
    verbs = rf"\bdoflow (?:{'|'.join(_VERBS)})\b"
    first = f"{command(world)}   and then   " if reopened else switch
    return re.sub(verbs, lambda found: f"{first}{found[0]}{which}", hint)


def _together(asked: list[Line], world: World) -> Advice:
    """What waits for a person: of several pauses side by side each is named."""
    pauses = [line for line in asked if line.role in _PAUSES]
    if len(pauses) < 2 or asked[0] not in pauses or _reopened(world):
        return on(asked[0], world)
    words, ways, first = [], {}, 1
    for line in pauses:
        told, how = _pause(line, world, first)
        words.append(told)
        ways[how] = True
        first += len(line.reasons) if line.role == "clarify" else 0
    return Advice("\n".join(words), f"{'   and   '.join(ways)}   then: {command(world)}")


def _pause(line: Line, world: World, first: int = 1) -> tuple[str, str]:
    """A gate or questions (the first of them with this number) in words, and the commands that answer it."""
    if line.role == "clarify":
        asked = "".join(f"\n  {number}. {words}" for number, words in enumerate(line.reasons, first))
        return f"{line.step} asks:{asked}", decide(world, "answer")
    step = world.flow.step(line.step)
    assert step is not None
    how = gate.answers(step, world, lambda verb, words: decide(world, verb, words), command(world))
    return gate.question(step, world), how


def on(line: Line, world: World) -> Advice:
    """What one line waits for that asks a person something."""
    go = command(world)
    if line.role == FAULT:
        return Advice(line.reasons[0], _aimed(line.remarks[0], world))
    if _reopened(world) and line.role in _PAUSES:
        here = f"{go}   takes it up here, on {world.head.branch or 'no branch'}, and asks again"
        return Advice(f"{line.reasons[0]} (its branch {world.run.branch} does not exist any more)", here)
    if line.role in _PAUSES:
        told, how = _pause(line, world)
        return Advice(told, f"{how}   then: {go}")
    found = world.flow.step(line.step)
    rule = plan.rule(found, world.book.markers.get(line.step, "")) if found else None
    if rule is None:
        words = f"put one of them on a line of its own, then: {go}   or   {go} --force={line.step}"
        return Advice(line.reasons[0], words)
    again = ",".join(rule.again)
    return Advice(line.reasons[0], f"{go} --force={again or line.step}   asks again")
