"""`doflow status`: all runs, or one run step by step. Read-only, also while a run is active."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doflow.cli import next_command, step_status
from doflow.cli.context import CommandContext
from doflow.cli.next_command import Advice
from doflow.cli.output import say, say_json, table, warn
from doflow.cli.step_status import Line
from doflow.config import project, uptodate_stamp
from doflow.engine.lifecycle.status_file import StatusFile
from doflow.git import head_reader
from doflow.runs import catalogue, mutex, session_layout
from doflow.runs.catalogue import Run
from doflow.runs.context import RunContext
from doflow.util import locks, state_folder
from doflow.util.errors import DoflowError

ABOUT = "Show what each run has done and what it waits for; with RUN, step by step. Read-only."
_LEFT = "; the next command moves its unfinished changes to quarantine"
EXAMPLES = """\
  doflow status            every run of this project
  doflow status 1          the steps of run 001-…
  doflow status --json     the same for programs"""

_ENDED = {
    "pipeline_complete": "completed", "paused": "paused", "gate": "awaiting-approval",
    "clarification": "awaiting-approval", "rate_limited": "rate-limited", "waiting": "rate-limited", "error": "failed",
}  # fmt: skip


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", help="run name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def status(args: Namespace) -> int:
    root = project.find()
    working = _working(root)
    if args.run:
        return _show_run(root, args.run, working, args.json)
    opened = project.open_project(root, os.environ)
    known = catalogue.list_runs(root, opened.layout)
    for name in {"doflow.yaml", *(run.flow for run in known)} & opened.broken.keys():
        warn(opened.broken[name])
    here = _here(root, known)
    rows = [_row(root, run, working, run is here) for run in known]
    torn = any(run.trouble for run in known)
    if args.json:
        say_json({"project": str(root), "holder": working, "runs": rows})
    elif rows:
        _tell(rows, working)
    elif not project.is_project(root):
        say(f"Not a doflow project: {root}. doflow init   makes it one")
    else:
        flows = ", ".join(opened.about)
        say(f'No runs yet. Start one: doit FLOW --goal="…"   (flows: {flows})')
    return 1 if torn else 0


def _working(root: Path) -> dict[str, Any] | None:
    """The holder of the run lock, as far as known; None = no run is active."""
    if not mutex.is_held(root):
        return None
    unknown = {"pid": None, "since": "", "command": mutex.describe_holder(root).strip(" ()")}
    return locks.read_holder(root / state_folder.HOLDER) or unknown


def _here(root: Path, known: Sequence[Run]) -> Run | None:
    """The run of the branch that is checked out."""
    branch = head_reader.find_head(str(root)).branch if known else ""
    runs = [run for run in known if branch and run.branch == branch]
    return next((run for run in reversed(runs) if not session_layout.parent_session(run.dir)), None)


def _row(root: Path, run: Run, working: Mapping[str, Any] | None, here: bool) -> dict[str, Any]:
    """One row of the table. A finished run is taken from its state file, unless it is checked out and its files changed;
    other runs are inspected."""
    state = step_status.load_state(root, run.name)
    advice = Advice("", "")
    done = state.get("status") == "completed"
    if run.trouble is not None:
        state, advice = {**state, "status": "failed"}, Advice(run.trouble.message, run.trouble.hint)
    elif not done or (here and not uptodate_stamp.valid_stamp(str(root), run.flow, None, run.name, dict(os.environ))):
        try:
            context, _, state, advice = _inspect(CommandContext(root), run, working)
            if state["died"]:  # the state file may be slightly out of date
                state["completed"] = StatusFile(context).values()["completed"]
        except DoflowError as error:
            advice = Advice(error.message, error.hint)
    return {
        "run": run.name, "flow": run.flow, "status": state.get("status", "active"),
        "died": state.get("died", False), "changed": done and bool(advice.waits or advice.command),
        "completed": len(state.get("completed", ())), "steps": len(state.get("pipeline", ())),
        "branch": run.branch, "goal": run.goal, "dir": run.dir,
        "current": run.branch == head_reader.find_head(str(root)).branch, "waits": advice.waits, "next": advice.command,
    }  # fmt: skip


def _inspect(
    command: CommandContext, run: Run, working: Mapping[str, Any] | None
) -> tuple[RunContext, tuple[Line, ...], dict[str, Any], Advice]:
    """A run as its next command would find it: its lines, its state and what to do next."""
    work = command.work(run)
    lines, crashed = next_command.preview_lines(work, working is not None)
    context = work.context
    state = _alive(_ended(step_status.load_state(command.root, run.name) or _derived(context, lines), lines), working)
    advice = next_command.find_advice(context, lines, working is not None, state.get("status") == "failed")
    if state["died"]:
        go = "" if crashed else advice.command
        died = f"the process running it died{_LEFT if crashed else ''}"
        advice = Advice(died, go or next_command.continue_command(context))
    return context, lines, state, advice


def _derived(context: RunContext, lines: tuple[Line, ...]) -> dict[str, Any]:
    """The state without pipeline-state.json (a clone, a deleted folder), from the run's record."""
    values = StatusFile(context).values()
    last = context.record.last_event
    if context.frozen or all(line.state == "done" for line in lines):
        values["status"] = "completed"
    elif not last:
        values |= {"status": "paused", "pauseReason": "not worked on here yet"}
    else:
        values["status"] = _ENDED.get(last["event"], "active")
    return values


def _ended(state: Mapping[str, Any], lines: tuple[Line, ...]) -> dict[str, Any]:
    """A paused run whose last steps were adopted or approved since is completed."""
    rests = state.get("status") in ("paused", "failed", "awaiting-approval") or state.get("pauseReason")
    if rests and all(line.state == "done" for line in lines):
        return {**state, "status": "completed", "pauseReason": "", "pendingApproval": None, "current": ""}
    return dict(state)


def _alive(state: Mapping[str, Any], working: Mapping[str, Any] | None) -> dict[str, Any]:
    """`active` without a running process means it died, unless its last process stopped on request."""
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
    goal = catalogue.shorten(row["goal"], 50)
    return ("*" if row["current"] else "", row["run"], row["flow"], word, done, row["branch"], goal)


def _who(working: Mapping[str, Any]) -> str:
    if working["pid"] is None:
        return str(working["command"]) or "another process holds the run lock"
    return f"pid {working['pid']} since {working['since']}: {working['command']}"


def _show_run(root: Path, name: str, working: Mapping[str, Any] | None, as_json: bool) -> int:
    command = CommandContext(root)
    run = command.run(name)
    context, lines, state, advice = _inspect(command, run, working)
    if state["died"]:
        advice = Advice(f"{advice.waits}; what is done stays done", next_command.continue_command(context))
    commits = step_status.step_commits(context)
    if as_json:
        extra = {"dir": run.dir, "holder": working, "waits": advice.waits, "next": advice.command}
        steps = [{**line.plain(), "commit": commits.get(line.name, "")} for line in lines]
        say_json({**state, **extra, "steps": steps})
        return 0
    since = " (changed since)" if state["status"] == "completed" and advice.command else ""
    word = "died" if state["died"] else f"{state['status']}{since}"
    say(f"{run.name}: {run.flow}, {word}, branch {run.branch}, {run.dir}/")
    say(f"goal: {catalogue.shorten(run.goal, 200)}")
    if step_status.is_on_other_branch(context):
        say(f"its files are on branch {run.branch}, which is not checked out; this is what is recorded:")
    table([_step_cells(line, commits) for line in lines], "  ")
    if advice.waits:
        say(f"waits: {advice.waits}")
    if advice.command:
        say(f"next: {advice.command}")
    if not advice.waits and not advice.command:
        say("nothing to do")
    if working is not None:
        say(f"working now: {_who(working)}")
    return 0


def _step_cells(line: Line, commits: Mapping[str, str]) -> tuple[str, ...]:
    words = "; ".join(line.reasons) or (f"may run, {line.maybe}" if line.maybe else "")
    edits = f"edited by hand: {', '.join(line.edited)}" if line.state == "edited" else ""
    return (line.state, line.name, line.author, commits.get(line.name, "")[:7], words or edits)
