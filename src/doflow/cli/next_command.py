"""What a run is waiting for, and the exact command that continues it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from doflow.cli import step_status
from doflow.cli.step_status import SETTLED, Line, is_on_other_branch
from doflow.engine.jobs import adoption
from doflow.engine.lifecycle import recovery
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import gate
from doflow.flow import plan
from doflow.git import refs
from doflow.runs import catalogue, event_log, mutex, next_steps, run_history
from doflow.runs.context import RunContext
from doflow.util import hints
from doflow.util.errors import DoflowError
from doflow.util.hints import Next, Target

_PAUSES = ("gate", "clarify")
_GOES_ON = frozenset({
    "step_starting", "phase_starting", "step_complete", "phase_complete", "adopted", "approved", "rejected", "answered",
    "reset", "forced", "pipeline_complete",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    """What a run is waiting for, and the command that continues it ('' = nothing to do)."""

    waits: str
    command: str


def find_advice(context: RunContext, lines: tuple[Line, ...], held: bool, failed: bool = False) -> Advice:
    """`failed`: the status says so; then its error comes before what else there is to do."""
    if held and any(line.state == "running" for line in lines):
        return Advice("running now", "")
    if is_on_other_branch(context) and context.run.branch not in refs.branch_names(context.head) and not context.frozen:
        ways = hints.text("", run_history.recovery_commands(context), context.target)
        return Advice(run_history.branch_gone_message(context), ways)
    ended = _ended(context, lines, failed)
    if failed and ended is not None:
        return ended
    asked = [line for line in lines if line.state == "asks"]
    if asked:
        return _together(asked, context)
    if all(line.state in (SETTLED if context.frozen else ("done",)) for line in lines):
        return Advice("", "")
    undone = [line for line in lines if line.state not in SETTLED]
    waiting = next((line for line in undone if line.role not in _PAUSES), undone[0] if undone else None)
    if ended is not None:
        return ended
    if waiting is None:
        return Advice("manual edits are not recorded yet", continue_command(context))
    if waiting.state == "stale" and waiting.edited:
        words = f"{waiting.name} is out of date, but {', '.join(waiting.edited)} has manual edits"
        keep = Next(("doflow", "adopt", waiting.step))
        return _advice(words, context, keep, next_steps.resume(context, f"--force={waiting.step}", link="or"))
    return Advice(f"{waiting.name}: {'; '.join(waiting.reasons)}", continue_command(context))


def _advice(waits: str, context: RunContext, *steps: Next, advice: str = "") -> Advice:
    return Advice(waits, hints.text(advice, steps, command_target(context)))


def continue_command(context: RunContext) -> str:
    """The command that continues this run: on its branch, or on the current one if that is gone."""
    return hints.command_text(("doit", context.run.flow), command_target(context))


def reopen_command(context: RunContext) -> str:
    """The command that continues a finished run on the current branch."""
    return f"doit {context.run.flow} --run={context.run.name} --reopen{context.lasting_options}"


def command_target(context: RunContext) -> Target:
    """What commands need to select this run from here: its branch, its name, its options."""
    run, options = context.run, context.target.options
    reopen = _reopened(context)
    known = catalogue.list_runs(context.root, os.path.dirname(run.dir) or "specs")
    same = [other.name for other in known if other.flow == run.flow and other.branch == run.branch]
    name = "" if same[-1:] in ([run.name], []) else run.name
    there = is_on_other_branch(context) or not run.fresh
    elsewhere = there and run.branch and run.branch != context.head.branch
    if elsewhere and reopen:
        return Target(run.flow, "", run.name, True, options)
    return Target(run.flow, run.branch if elsewhere else "", name, reopen, options)


def _reopened(context: RunContext) -> bool:
    """Does the run need --reopen because its branch no longer exists (merged and deleted, say)?"""
    run, head = context.run, context.head
    if run.fresh or not run.branch or run.branch == head.branch or is_on_other_branch(context):
        return False
    return run.branch not in refs.branch_names(head)


def _ended(context: RunContext, lines: tuple[Line, ...], failed: bool) -> Advice | None:
    """How the last attempt ended, if unsuccessful and not continued since."""
    settled = {line.name for line in lines if line.state in SETTLED}
    ends = [(name, end) for name, end in _ends(context) if name not in settled]
    wanted = [(name, end) for name, end in ends if end["event"] == "error"] if failed else ends[-1:]
    if not wanted:
        return None
    name, end = wanted[-1]
    return advice_for_event(name, end, command_target(context))


def advice_for_event(name: str, end: Mapping[str, Any], where: Target) -> Advice:
    """The advice from an unsuccessful entry of the event log, with the commands for the current branch.

    Entries of 0.1.0 have their hint only as text, which is shown unchanged."""
    message, until = str(end["message"]), str(end.get("resumeAt") or "")
    message = message if not name or name in message else f"{name}: {message}"
    steps, text = hints.from_entries(end.get("next")), str(end.get("hint") or "")
    message += f" (try again at {until})" if until and not any(step.at for step in steps) else ""
    if not steps and text:
        steps = (Next(why=text),)
    if not any(step.runs_flow for step in steps):
        steps = (*steps, Next(("doit", where.flow), link="then"))
    return Advice(message, hints.text(str(end.get("advice", "")), steps, where))


def _ends(context: RunContext) -> list[tuple[str, Mapping[str, Any]]]:
    """The unsuccessful ends, in order, without those of steps started, done or decided since."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in event_log.read_events(context.state_dir / "events.jsonl"):
        name = ":".join(part for part in (entry.get("step", ""), entry.get("phase", "")) if part)
        if entry["event"] in _GOES_ON:
            found.pop(name, None)
            found.pop("", None)
        if entry["event"] in ("paused", "rate_limited", "error") and entry.get("message"):
            found.pop(name, None)
            found[name] = entry
    return list(found.items())


def _together(asked: list[Line], context: RunContext) -> Advice:
    """What is waiting for the user; several parallel pauses are all listed."""
    pauses = [line for line in asked if line.role in _PAUSES]
    if len(pauses) < 2 or asked[0] not in pauses or _reopened(context):
        return advice_for_line(asked[0], context)
    questions, ways, number = [], [], 1
    for line in pauses:
        question, answers = _pause(line, context, number)
        questions.append(question)
        ways += [answers] if answers not in ways else []
        number += len(line.reasons) if line.role == "clarify" else 0
    steps = [step._replace(link=step.link or "and") for answers in ways for step in answers]
    steps = [steps[0]._replace(link=""), *steps[1:], next_steps.resume(context, link="then")]
    return _advice("\n".join(questions), context, *steps)


def _pause(line: Line, context: RunContext, first: int = 1) -> tuple[str, tuple[Next, ...]]:
    """The text of a gate or of questions (numbered from `first`), and the commands to answer."""
    if line.role == "clarify":
        asked = "".join(f"\n  {number}. {words}" for number, words in enumerate(line.reasons, first))
        return f"{line.step} asks:{asked}", (Next(("doflow", "answer")),)
    step = context.flow.step(line.step)
    assert step is not None
    return gate.question(step, context), gate.approval_commands(step, context)


def advice_for_line(line: Line, context: RunContext) -> Advice:
    """The advice for a line that is waiting for the user."""
    if line.fault is not None:
        return _advice(line.reasons[0], context, *line.fault.next, advice=line.fault.advice)
    if _reopened(context) and line.role in _PAUSES:
        does = f"continues it here, on {context.head.branch or 'no branch'}, and asks again"
        words = f"{line.reasons[0]} (its branch {context.run.branch} no longer exists)"
        return _advice(words, context, next_steps.resume(context, does=does))
    if line.role in _PAUSES:
        question, answers = _pause(line, context)
        return _advice(question, context, *answers, next_steps.resume(context, link="then"))
    found = context.flow.step(line.step)
    rule = plan.find_route(found, context.record.markers.get(line.step, "")) if found else None
    if rule is None:
        return _advice(line.reasons[0], context, *gate.marker_commands(line.step, context), advice=gate.MARK)
    again = ",".join(rule.again) or line.step
    return _advice(line.reasons[0], context, next_steps.resume(context, f"--force={again}", does="asks again"))


def preview_lines(work: ActiveRun, held: bool = False) -> tuple[tuple[Line, ...], bool]:
    """The lines of a run as the next start will recover it, and whether a killed process has left something."""
    killed = preview_recovery(work)
    adoption.preview_edits(work.context)
    lines = step_status.list_lines(work.context, held)
    if not killed and not work.context.files.pending:
        return lines, False
    return tuple(_annotated(line, killed, work.context) for line in lines), True


def preview_recovery(work: ActiveRun) -> frozenset[str]:
    """Replace the context with the one after recovery, if a process was killed; returns the jobs that left files."""
    context = work.context
    window = (context.state_dir / "window").exists()
    idle = context.run.fresh or not (window or context.record.started)
    if idle or is_on_other_branch(context) or mutex.is_held(context.root):
        return frozenset()
    try:
        killed, pending = recovery.preview_recovery(context, work.fence)
    except DoflowError:
        return frozenset()  # the next start reports it
    if not (window and killed) and not pending:
        return frozenset()
    work.context = context.with_files(context.files.with_pending(pending))
    return killed


def _annotated(line: Line, killed: frozenset[str], context: RunContext) -> Line:
    """The line, with a remark if files will be moved to quarantine."""
    step = context.step(line.name) if line.role == "item" else context.flow.step(line.step)
    makes = step.makes if step is not None and line.role in ("step", "item") else ()
    left = ", ".join(path for name in makes if (path := context.files.path(name)) in context.files.pending)
    if not left and line.name not in killed:
        return line
    what = f"what a killed process left{f' in {left}' if left else ''}"
    remark = f"{what} will be moved to quarantine by {continue_command(context)}"
    return replace(line, remarks=(remark, *line.remarks))
