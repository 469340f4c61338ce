"""`doflow status`: every run at a glance, or one run step by step. Reads only, also while a run works."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.cli.output import say, say_json, table, warn
from doflow.config import project, uptodate_stamp as hot
from doflow.git import repository as look
from doflow.runs import catalogue as runs, mutex as holder, session_layout as sessionpaths
from doflow.runs.catalogue import Run
from doflow.util.errors import DoflowError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from doflow.cli.report.step_status import Line
    from doflow.runs.context import World

ABOUT = "What each run has done, and what it waits for; with RUN, step by step. Nothing is written."
EXAMPLES = """\
  doflow status            every run of this project
  doflow status 1          the steps of run 001-…
  doflow status --json     the same for programs"""

_ENDED = {
    "pipeline_complete": "completed", "paused": "paused", "gate": "awaiting-approval",
    "clarification": "awaiting-approval", "rate_limited": "rate-limited", "waiting": "rate-limited", "error": "failed",
}  # fmt: skip


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", help="one run: its name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def status(args: Namespace) -> int:
    root = project.find()
    working = _working(root)
    if args.run:
        return _one(root, args.run, working, args.json)
    opened = project.open_(root, os.environ)
    known = runs.known(root, opened.layout)
    for name in {"doflow.yaml", *(run.flow for run in known)} & opened.broken.keys():
        warn(opened.broken[name])
    here = _here(root, known)
    rows = [_row(root, run, working, run is here) for run in known]
    torn = any(run.trouble for run in known)
    if args.json:
        say_json({"project": str(root), "holder": working, "runs": rows})
    elif rows:
        _tell(rows, working)
    elif not project.begun(root):
        say(f"{root} is no project of doflow's yet: doflow init   makes it one")
    else:
        flows = ", ".join(opened.about)
        say(f'no run here yet. Start one: doit FLOW --goal="…"   (flows: {flows})')
    return 1 if torn else 0


def _working(root: Path) -> dict[str, Any] | None:
    """Who holds the run lock now, as far as it is known."""
    if not holder.held(root):
        return None
    try:
        return dict(json.loads((root / ".doflow" / "holder.json").read_text()))
    except (OSError, ValueError):
        return {"pid": None, "since": "", "command": holder.who(root).strip(" ()")}


def _here(root: Path, known: Sequence[Run]) -> Run | None:
    """The run of the branch that is checked out."""
    branch = look.find(str(root)).branch if known else ""
    mine = [run for run in known if branch and run.branch == branch]
    return next((run for run in reversed(mine) if not sessionpaths.parent(run.dir)), None)


def _row(root: Path, run: Run, working: Mapping[str, Any] | None, here: bool) -> dict[str, Any]:
    """One line of the table. A finished run is believed, unless it is the one that is checked out and something of it
    was touched; anything else is looked at."""
    state = _projected(root, run)
    waits = command = ""
    done = state.get("status") == "completed"
    if run.trouble is not None:
        state, waits, command = {**state, "status": "failed"}, run.trouble.message, run.trouble.hint
    elif not done or (here and hot.holds(str(root), run.flow, None, run.name, dict(os.environ)) is None):
        try:
            state, waits, command = _looked(root, run, state, working)
        except DoflowError as error:
            waits, command = error.message, error.hint
    return {
        "run": run.name, "flow": run.flow, "status": state.get("status", "active"),
        "died": state.get("died", False), "changed": done and bool(waits or command),
        "completed": len(state.get("completed", ())), "steps": len(state.get("pipeline", ())),
        "branch": run.branch, "goal": run.goal, "dir": run.dir,
        "current": run.branch == look.find(str(root)).branch, "waits": waits, "next": command,
    }  # fmt: skip


def _projected(root: Path, run: Run) -> dict[str, Any]:
    try:
        found = json.loads((root / ".doflow" / "runs" / run.name / "pipeline-state.json").read_bytes())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _looked(root: Path, run: Run, state: dict[str, Any], working: Any) -> tuple[dict[str, Any], str, str]:
    from doflow.cli.context import Desk
    from doflow.cli.report import after_crash as aftermath, next_command as advice, step_status as outlook
    from doflow.engine.jobs import adoption as adopting
    from doflow.engine.lifecycle.status_file import Projection

    world = aftermath.seen(Desk(root).work(run))
    adopting.foresee(world)
    lines = outlook.of(world, bool(working))
    state = state or _derived(world, lines)
    state = _alive(_ended(state, lines), working)
    told = advice.of(world, lines, bool(working), state.get("status") == "failed")
    if state["died"]:  # its state on disk may be a moment older than its end
        state["completed"] = Projection(world).values()["completed"]
        go = "" if aftermath.killed(world) else told.command
        return state, f"the process that worked on it died{_aside(world)}", go or advice.command(world)
    return state, told.waits, told.command


def _aside(world: World) -> str:
    from doflow.cli.report import after_crash as aftermath

    return ", and what it left half-done is put aside by the next command" if aftermath.killed(world) else ""


def _derived(world: World, lines: tuple[Line, ...]) -> dict[str, Any]:
    """No pipeline-state.json (a clone, a lost folder): the book knows as much."""
    from doflow.engine.lifecycle.status_file import Projection

    values = Projection(world).values()
    last = world.book.last
    if world.frozen or all(line.state == "done" for line in lines):
        values["status"] = "completed"
    elif not last:
        values |= {"status": "paused", "pauseReason": "not worked on here yet"}
    else:
        values["status"] = _ENDED.get(last["event"], "active")
    return values


def _ended(state: Mapping[str, Any], lines: tuple[Line, ...]) -> dict[str, Any]:
    """A pause after which a person settled the rest (adopt, approve) is none: nothing is left to do."""
    rests = state.get("status") in ("paused", "failed", "awaiting-approval") or state.get("pauseReason")
    if rests and all(line.state == "done" for line in lines):
        return {**state, "status": "completed", "pauseReason": "", "pendingApproval": None, "current": ""}
    return dict(state)


def _alive(state: Mapping[str, Any], working: Mapping[str, Any] | None) -> dict[str, Any]:
    """`active` with nobody at work on it means: it died, unless its last process said that no more was asked of it."""
    busy = working is not None and str(state.get("updated", "")) >= str(working.get("since", ""))
    return {**state, "died": state.get("status") == "active" and not busy and not state.get("pauseReason")}


def _tell(rows: list[dict[str, Any]], working: Mapping[str, Any] | None) -> None:
    head = ("", "RUN", "FLOW", "STATUS", "DONE", "BRANCH", "GOAL")
    table([head, *(_cells(row) for row in rows)])
    for row in rows:
        if row["waits"]:
            say(f"\n{row['run']}: {row['waits']}")
        if row["next"]:
            say(f"  next: {row['next']}")
    if working is not None:
        say(f"\nworking now: {_who(working)}")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    since = " (changed since)" if row["changed"] else ""
    word = "died" if row["died"] else f"{row['status']}{since}"
    done = f"{row['completed']}/{row['steps']}" if row["steps"] else "?"
    goal = runs.shorten(row["goal"], 50)
    return ("*" if row["current"] else "", row["run"], row["flow"], word, done, row["branch"], goal)


def _who(working: Mapping[str, Any]) -> str:
    if working["pid"] is None:
        return str(working["command"]) or "somebody holds the run lock"
    return f"pid {working['pid']} since {working['since']}: {working['command']}"


def _one(root: Path, name: str, working: Mapping[str, Any] | None, as_json: bool) -> int:
    from doflow.cli.context import Desk
    from doflow.cli.report import after_crash as aftermath, next_command as advice, step_status as outlook
    from doflow.engine.jobs import adoption as adopting

    desk = Desk(root)
    run = desk.run(name)
    world = aftermath.seen(desk.work(run))
    adopting.foresee(world)
    lines = aftermath.noted(outlook.of(world, working is not None), world)
    state = _alive(_ended(_projected(root, run) or _derived(world, lines), lines), working)
    commits = outlook.commits(world)
    told = advice.of(world, lines, working is not None, state.get("status") == "failed")
    if state["died"]:
        words = f"the process that worked on it died{_aside(world)}; what is done stays done"
        told = advice.Advice(words, advice.command(world))
    if as_json:
        extra = {"dir": run.dir, "holder": working, "waits": told.waits, "next": told.command}
        steps = [{**line.plain(), "commit": commits.get(line.name, "")} for line in lines]
        say_json({**state, **extra, "steps": steps})
        return 0
    _head(run, state, bool(told.command))
    if outlook.away(world):
        say(f"its files are on branch {run.branch}, which is not checked out; this is what is recorded:")
    table([_step_cells(line, commits) for line in lines], "  ")
    _foot(told.waits, told.command, working)
    return 0


def _head(run: Run, state: Mapping[str, Any], open_: bool) -> None:
    since = " (changed since)" if state["status"] == "completed" and open_ else ""
    word = "died" if state["died"] else f"{state['status']}{since}"
    say(f"{run.name}: {run.flow}, {word}, branch {run.branch}, {run.dir}/")
    say(f"goal: {runs.shorten(run.goal, 200)}")


def _foot(waits: str, command: str, working: Mapping[str, Any] | None) -> None:
    if waits:
        say(f"waits: {waits}")
    if command:
        say(f"next: {command}")
    if not waits and not command:
        say("nothing to do")
    if working is not None:
        say(f"working now: {_who(working)}")


def _step_cells(line: Line, commits: Mapping[str, str]) -> tuple[str, ...]:
    words = "; ".join(line.reasons) or (f"may run, {line.maybe}" if line.maybe else "")
    edits = f"edited by hand: {', '.join(line.edited)}" if line.state == "edited" else ""
    return (line.state, line.name, line.author, commits.get(line.name, "")[:7], words or edits)
