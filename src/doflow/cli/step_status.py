"""The status of a run: the state of each step, the reasons and the author. Read-only."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from doflow.engine.doit.backend import FORGOTTEN
from doflow.engine.jobs import adoption
from doflow.engine.steps import gate, implement
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.flow.plan import Node
from doflow.runs import event_log, freshness, lockfile
from doflow.runs.context import RunContext
from doflow.util import state_folder
from doflow.util.errors import DoflowError

#: nothing is left to do in these states
SETTLED = frozenset({"done", "edited"})
#: roles of lines that are work; the others are pauses and routes
WORK = frozenset({"step", "phase", "phases", "item", "each"})
#: an invalid list: its remark has the next command
FAULT = "fault"
_CODE = "the code"
#: a gate that asks again later; shown as waiting
_DEFERRED = "deferred"
_NEW = "not run yet"
_FORGOTTEN = "forgotten with doit forget"


@dataclass(frozen=True, slots=True)
class Line:
    """A step, a phase, an item, a gate, open questions or a route. `maybe`: the condition under which it runs.

    `changed`: a setting that does not invalidate the step has changed; the remarks say which."""

    name: str
    role: str
    step: str
    state: str = "done"  # done, edited, stale, running, next, waiting, asks
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    author: str = ""
    maybe: str = ""
    changed: bool = False
    fault: DoflowError | None = None

    def plain(self) -> dict[str, Any]:
        return {
            "step": self.name, "role": self.role, "state": self.state, "reasons": list(self.reasons),
            "remarks": list(self.remarks), "edited": list(self.edited), "author": self.author, "maybe": self.maybe,
        }  # fmt: skip


def list_lines(context: RunContext, held: bool = False) -> tuple[Line, ...]:
    """The lines of every active step of a run, in order. `held`: a run of this project is active."""
    lines: list[Line] = []
    gone = forgotten_tasks(context.root)
    changing: dict[str, str] = {}
    unsettled: set[str] = set()
    moved: set[str] = set()
    undecided = ""
    revisers: set[str] = set()  # reviews that end before the gate of what they changed asks again
    for name in context.order.active():
        step = context.flow.step(name)
        assert step is not None
        ready = unsettled.isdisjoint(context.order.before(name))
        followed = moved.intersection((*context.order.before(name), *context.order.builders(step)))
        found = _lines(step, context, gone)
        if followed:
            words = f"the phases of {', '.join(sorted(followed))}, which it follows, change"
            idle = [line for line in found if line.role in ("step", "item") and not line.reasons]
            found = [replace(line, state="done", reasons=(words,)) if line in idle else line for line in found]
        found = [_placed(line, ready, held, context) for line in found]
        found = [_perhaps(line, step, changing, undecided, context) for line in _in_turn(found)]
        deferred = [line for line in found if line.state == _DEFERRED]
        revisers |= {gate.unfinished_reviser(step, context) for _ in deferred}
        lines += [replace(line, state="waiting") if line in deferred else line for line in found]
        if not ready or any(line.state not in SETTLED for line in found if line not in deferred) or name in revisers:
            unsettled.add(name)
        if any(line.reasons or line.maybe for line in found if line.role in WORK) and not any(
            line.role == FAULT for line in found
        ):
            changing |= dict.fromkeys(_changes(step, context), name)
        if _moves(step, found, context):
            moved.add(name)
        if step.routes and not plan.find_route(step, context.record.markers.get(name, "")):
            undecided = name
    return tuple(lines)


def is_on_other_branch(context: RunContext) -> bool:
    """Are the run's files on a branch that is not checked out? Then only its records are known."""
    return (
        context.head.branch != context.run.branch
        and not (context.run_dir / lockfile.NAME).exists()
        and bool(context.record.steps)
    )


def step_commits(context: RunContext) -> dict[str, str]:
    """The commit of each finished step and phase, as far as this machine's event log knows."""
    found: dict[str, str] = {}
    for entry in event_log.read_events(context.state_dir / "events.jsonl"):
        name = f"{entry.get('step')}{':' + entry['phase'] if entry.get('phase') else ''}"
        if entry["event"] in ("step_complete", "phase_complete") and entry.get("commit"):
            found[name] = str(entry["commit"])
        elif entry["event"] == "reset":
            found.pop(name, None)
    return found


def load_state(root: Path, run: str) -> dict[str, Any]:
    """The status that the last process of a run wrote for other programs; {} = none that can be read."""
    try:
        state = json.loads((root / state_folder.RUNS / run / "pipeline-state.json").read_bytes())
        return state if isinstance(state, dict) else {}
    except (OSError, ValueError):
        return {}


def forgotten_tasks(root: Path) -> frozenset[str]:
    """The tasks forgotten with `doit forget`. Opened read-only, so that no journal file is left."""
    path = root / state_folder.DOIT_DATABASE
    if not path.exists():
        return frozenset()

    way = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
    try:
        base = sqlite3.connect(f"file:{quote(str(path))}?{way}", uri=True, timeout=1)
        try:
            rows = base.execute("select task_id from doit where instr(task_data, ?)", (FORGOTTEN,))
            return frozenset(row[0] for row in rows)
        finally:
            base.close()
    except sqlite3.Error:
        return frozenset()


def _lines(step: Step, context: RunContext, gone: frozenset[str]) -> list[Line]:
    found: list[Line] = []
    for node in context.plan.nodes:
        if node.step != step.id:
            continue
        name = node.name.removeprefix(f"{context.flow.name}:")
        if node.role in ("phases", "each") and (fault := implement.find_work_list_problem(step, context)):
            return [Line(step.id, FAULT, step.id, "asks", (fault.message,), (fault.hint,), fault=fault)]
        if node.role == "phases":
            found += _phases(step, context, gone)
        elif node.role == "each":
            found += _items(step, context, gone)
        elif node.role == "step":
            found.append(_step(step, context, node.name in gone))
        else:
            asked = _question(node, name, step, context)
            found += [asked] if asked is not None else []
    return found


def _step(step: Step, context: RunContext, forgotten: bool) -> Line:
    record = context.record.steps.get(step.id)
    author = freshness.author(step.id, step, context)
    if is_on_other_branch(context):
        no = freshness.rejection_reason(step, context) if record else _NEW
        return Line(step.id, "step", step.id, author=author, reasons=(no,) if no else ())
    if step.id in context.record.returned and not context.run.fresh:
        left = "its agent has returned; its result still has to be checked and committed"
        if context.record.returned[step.id].get("unfinished"):
            left = "an agent has made repairs; its command must run again"
        return Line(step.id, "step", step.id, reasons=(left,))
    verdict = freshness.step_freshness(step, context)
    reasons = (*((_FORGOTTEN,) if forgotten else ()), *verdict.reasons)
    line = Line(step.id, "step", step.id, "done", reasons, verdict.remarks, verdict.edited, author)
    return _judged(replace(line, changed=verdict.changed), context)


def _items(step: Step, context: RunContext, gone: frozenset[str]) -> list[Line]:
    items = context.items(step)
    if not items:
        return [Line(step.id, "each", step.id, reasons=() if step.id in context.record.steps else (_NEW,))]
    found = [_step(item, context, f"{context.flow.name}:{item.id}" in gone) for item in items]
    return [replace(line, role="item", step=step.id) for line in found]


def _changes(step: Step, context: RunContext) -> list[str]:
    """The files that a step would write: its artifacts; for a review what its fixer may change; the code."""
    steps = context.items(step) if step.foreach else (step,)
    found = [context.files.path(name) for one in steps for name in one.makes]
    if step.kind == "review":
        found += [path for read in step.reads for path in context.files.expand(read.path)]
    return [*found, _CODE] if step.kind == "implement" else found


def _phases(step: Step, context: RunContext, gone: frozenset[str]) -> list[Line]:
    if is_on_other_branch(context):
        names = [name for name in context.record.steps if name.startswith(f"{step.id}:")]
        done = [Line(name, "phase", step.id, author=freshness.author(name, step, context)) for name in names]
        return done or [Line(step.id, "phases", step.id, reasons=(_NEW,))]
    if not context.files.digest(context.phases(step)):
        return [Line(step.id, "phases", step.id, reasons=(_NEW,))]
    found = []
    for phase, key in freshness.phase_keys(step, context):
        name = f"{step.id}:{phase.number}"
        verdict = freshness.phase_freshness(step, phase, key, context)
        reasons = (*((_FORGOTTEN,) if f"{context.flow.name}:{name}" in gone else ()), *verdict.reasons)
        line = Line(name, "phase", step.id, "done", reasons, verdict.remarks, (), freshness.author(name, step, context))
        found.append(_judged(replace(line, changed=verdict.changed), context))
    return found


def _judged(line: Line, context: RunContext) -> Line:
    """A finished run on another branch stays finished: out-of-date steps become a remark."""
    if line.reasons and context.frozen:
        would = f"would run again: {'; '.join(line.reasons)} (the run is finished; use --reopen to continue it)"
        return replace(line, reasons=(), remarks=(would, *line.remarks))
    fresh_edits = adoption.unrecorded_edits(context, line.edited)
    return replace(line, state="edited") if fresh_edits and not line.reasons else line


def _question(node: Node, name: str, step: Step, context: RunContext) -> Line | None:
    """The line of a gate, of open questions, or of a route."""
    if node.role == "gate":
        held = context.record.approvals.get(step.id)
        yes = held is not None if is_on_other_branch(context) else gate.is_approved(step, context)
        if context.frozen or yes:
            return Line(name, "gate", step.id, author=held.by if held else "auto_approve")
        words = plan.gate_text(step, context.settings)
        if reviser := gate.unfinished_reviser(step, context):
            return Line(name, "gate", step.id, _DEFERRED, (f"{words} (asks again when {reviser} is done)",))
        return Line(name, "gate", step.id, "asks", (words,))
    if node.role == "clarify":
        asked = gate.open_questions(step, context)
        return Line(name, "clarify", step.id, "asks", tuple(words for _, words in asked)) if asked else None
    marker = context.record.markers.get(step.id, "")
    rule = plan.find_route(step, marker)
    if rule is None:
        lost = gate.describe_lost_marker(step, context)
        return Line(name, "route", step.id, "asks", (lost,)) if lost and not context.frozen else None
    if rule.pause:
        return Line(name, "route", step.id, "asks", (f"{marker}: {rule.pause}",))
    return Line(name, "route", step.id, author=marker)


def _placed(line: Line, ready: bool, held: bool, context: RunContext) -> Line:
    """The line with its state, given whether earlier steps are done."""
    if held and line.name in context.record.started:
        return replace(line, state="running")
    if line.state == "asks":
        return line if ready else replace(line, state="waiting")
    if line.state == _DEFERRED or not line.reasons:
        return line
    if line.name in context.record.steps and line.name not in context.record.returned:
        return replace(line, state="stale")
    return replace(line, state="next" if ready else "waiting")


def _moves(step: Step, lines: list[Line], context: RunContext) -> bool:
    """Will the steps after an implement step run again because its phases do?"""
    if step.kind != "implement" or any(line.role == FAULT for line in lines) or not any(line.reasons for line in lines):
        return False
    return not is_on_other_branch(context) and bool(context.files.digest(context.phases(step)))


def _in_turn(lines: list[Line]) -> list[Line]:
    """Within a step, a phase waits for the previous one and a gate for its step; items do not wait."""
    found: list[Line] = []
    for line in lines:
        behind = line.role != "item" and any(other.state not in SETTLED for other in found)
        found.append(replace(line, state="waiting") if behind and line.state in ("next", "asks") else line)
    return found


def _perhaps(line: Line, step: Step, changing: Mapping[str, str], undecided: str, context: RunContext) -> Line:
    """The line with the condition it depends on, if any."""
    if undecided and line.reasons:
        return replace(line, maybe=f"if {undecided} routes to it")
    if line.reasons or not changing or line.role in ("clarify", "route"):
        return line
    hit = next((path for path in _rests_on(line, step, context) if path in changing), "")
    return replace(line, maybe=f"if {changing[hit]} changes {hit}") if hit else line


def _rests_on(line: Line, step: Step, context: RunContext) -> list[str]:
    """The files whose change would invalidate the line."""
    if line.role in ("phase", "phases"):
        return [context.phases(step)]
    one = (context.step(line.name) if line.role == "item" else None) or step
    paths = [path for read in one.reads for path in context.files.expand(read.path)]
    paths += [_CODE] if context.order.reviews_code(step) else []
    earlier = [found for name in context.order.before(step.id) if (found := context.flow.step(name))]
    paths += [context.phases(found) for found in earlier if found.kind == "implement"]
    return [*paths, *(context.files.path(name) for name in step.makes)] if line.role == "gate" else paths
