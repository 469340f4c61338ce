"""How a run looks from outside: each step's state, why, by whom, and what goes on from here. Reads, never writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.engine.doit.backend import FORGOTTEN
from doflow.engine.steps import gate, work_items as worklist
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.flow.plan import Node
from doflow.runs.context import STATE, World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state import event_log as ledger, lockfile as lock
from doflow.util.records import dataclass, replace

#: nothing is left to do in these states
SETTLED = frozenset({"done", "edited"})
#: lines that stand for work; the others are pauses and turns
WORK = frozenset({"step", "phase", "phases", "item", "each"})
#: a list that cannot be gone by: its remark says what to type
FAULT = "fault"
_CODE = "the code"
_NEW = "it has not been done yet"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to do: a step, a phase, an item, a gate, open questions, a route. `maybe`: only if that happens."""

    name: str
    role: str
    step: str
    state: str = "done"  # done, edited, stale, running, next, waiting, asks
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    author: str = ""
    maybe: str = ""

    def plain(self) -> dict[str, Any]:
        return {
            "step": self.name, "role": self.role, "state": self.state, "reasons": list(self.reasons),
            "remarks": list(self.remarks), "edited": list(self.edited), "author": self.author, "maybe": self.maybe,
        }  # fmt: skip


def of(world: World, held: bool = False) -> tuple[Line, ...]:
    """Every active step of a run in order. `held`: somebody works in this project now."""
    lines: list[Line] = []
    gone = forgotten(world.root)
    changing: dict[str, str] = {}
    unsettled: set[str] = set()
    moved: set[str] = set()
    undecided = ""
    for name in world.order():
        step = world.flow.step(name)
        assert step is not None
        ready = unsettled.isdisjoint(world.before(name))
        followed = moved.intersection((*world.before(name), *world.built_by(step)))
        told = [_following(line, followed) for line in _lines(step, world, gone)]
        found = [_placed(line, ready, held, world) for line in told]
        found = [_perhaps(line, step, changing, undecided, world) for line in _in_turn(found)]
        lines += found
        if not ready or any(line.state not in SETTLED for line in found):
            unsettled.add(name)
        if any(line.reasons or line.maybe for line in found if line.role in WORK) and not _faulty(found):
            changing |= dict.fromkeys(_changes(step, world), name)
        if _moves(step, found, world):
            moved.add(name)
        if step.routes and not plan.rule(step, world.book.markers.get(name, "")):
            undecided = name
    return tuple(lines)


def away(world: World) -> bool:
    """The run's files are on a branch that is not checked out: only its records can be told."""
    return world.head.branch != world.run.branch and not (world.run_dir / lock.NAME).exists() and bool(world.book.steps)


def commits(world: World) -> dict[str, str]:
    """The commit of each finished step and phase, as far as this machine's ledger knows."""
    found: dict[str, str] = {}
    for entry in ledger.read(world.state_dir / "events.jsonl"):
        name = f"{entry.get('step')}{':' + entry['phase'] if entry.get('phase') else ''}"
        if entry["event"] in ("step_complete", "phase_complete") and entry.get("commit"):
            found[name] = str(entry["commit"])
        elif entry["event"] == "reset":
            found.pop(name, None)
    return found


def forgotten(root: Path) -> frozenset[str]:
    """The tasks that a person told doit to forget. The file is only read: no journal of ours is left beside it."""
    path = root / STATE / "state.db"
    if not path.exists():
        return frozenset()
    import sqlite3
    from urllib.parse import quote

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


def _lines(step: Step, world: World, gone: frozenset[str]) -> list[Line]:
    found: list[Line] = []
    for node in world.plan.nodes:
        if node.step != step.id:
            continue
        name = node.name.removeprefix(f"{world.flow.name}:")
        if node.role in ("phases", "each") and (fault := worklist.trouble(step, world)):
            return [Line(step.id, FAULT, step.id, "asks", (fault.message,), (fault.hint,))]
        if node.role == "phases":
            found += _phases(step, world, gone)
        elif node.role == "each":
            found += _items(step, world, gone)
        elif node.role == "step":
            found.append(_step(step, world, node.name in gone))
        else:
            asked = _question(node, name, step, world)
            found += [asked] if asked is not None else []
    return found


def _step(step: Step, world: World, forgotten: bool) -> Line:
    record = world.book.steps.get(step.id)
    author = judge.author(step.id, step, world)
    if away(world):
        no = judge.rejected(step, world) if record else _NEW
        return Line(step.id, "step", step.id, author=author, reasons=(no,) if no else ())
    if step.id in world.book.returned and not world.run.fresh:
        return Line(step.id, "step", step.id, reasons=(_left(world.book.returned[step.id]),))
    verdict = judge.of_step(step, world)
    reasons = (*(("you told doit to forget it",) if forgotten else ()), *verdict.reasons)
    return _judged(Line(step.id, "step", step.id, "done", reasons, verdict.remarks, verdict.edited, author), world)


def _left(entry: Mapping[str, Any]) -> str:
    if entry.get("unfinished"):
        return "an agent has mended some of it; what is left is to run its command"
    return "its agent has returned; what is left is to check and commit"


def _items(step: Step, world: World, gone: frozenset[str]) -> list[Line]:
    items = world.items(step)
    if not items:
        return [Line(step.id, "each", step.id, reasons=() if step.id in world.book.steps else (_NEW,))]
    found = [_step(item, world, f"{world.flow.name}:{item.id}" in gone) for item in items]
    return [replace(line, role="item", step=step.id) for line in found]


def _changes(step: Step, world: World) -> list[str]:
    """The files that a step would write anew: what it makes; of a review what its fixer may mend; the code."""
    steps = world.items(step) if step.foreach else (step,)
    found = [world.path(said) for one in steps for said in one.makes]
    if step.kind == "review":
        found += [path for read in step.reads for path in world.place.expand(read.path)]
    return [*found, _CODE] if step.kind == "implement" else found


def _phases(step: Step, world: World, gone: frozenset[str]) -> list[Line]:
    if away(world):
        names = [name for name in world.book.steps if name.startswith(f"{step.id}:")]
        done = [Line(name, "phase", step.id, author=judge.author(name, step, world)) for name in names]
        return done or [Line(step.id, "phases", step.id, reasons=(_NEW,))]
    if not world.digest(world.phases(step)):
        return [Line(step.id, "phases", step.id, reasons=(_NEW,))]
    found = []
    for phase, key in judge.phase_keys(step, world):
        name = f"{step.id}:{phase.number}"
        verdict = judge.of_phase(step, phase, key, world)
        told = f"{world.flow.name}:{name}" in gone
        reasons = (*(("you told doit to forget it",) if told else ()), *verdict.reasons)
        line = Line(name, "phase", step.id, "done", reasons, verdict.remarks, (), judge.author(name, step, world))
        found.append(_judged(line, world))
    return found


def _judged(line: Line, world: World) -> Line:
    """A finished run on another branch stays finished: what would be stale is a remark."""
    if line.reasons and world.frozen:
        would = f"would be done again: {'; '.join(line.reasons)} (the run is finished; --reopen lets it go on)"
        return replace(line, reasons=(), remarks=(would, *line.remarks))
    fresh_edits = [path for path in line.edited if _unrecorded(path, world)]
    return replace(line, state="edited") if fresh_edits and not line.reasons else line


def _unrecorded(path: str, world: World) -> bool:
    held = world.book.artifacts.get(path)
    return held is None or held.digest != world.digest(path)


def _question(node: Node, name: str, step: Step, world: World) -> Line | None:
    """A gate, open questions, or where a marker leads."""
    if node.role == "gate":
        held = world.book.approvals.get(step.id)
        yes = held is not None if away(world) else gate.approved(step, world)
        if world.frozen or yes:
            return Line(name, "gate", step.id, author=held.by if held else "auto_approve")
        return Line(name, "gate", step.id, "asks", (plan.gate_text(step, world.settings),))
    if node.role == "clarify":
        asked = gate.open_questions(step, world)
        return Line(name, "clarify", step.id, "asks", tuple(words for _, words in asked)) if asked else None
    marker = world.book.markers.get(step.id, "")
    rule = plan.rule(step, marker)
    if rule is None:
        lost = gate.unmarked(step, world)
        return Line(name, "route", step.id, "asks", (lost,)) if lost and not world.frozen else None
    if rule.pause:
        return Line(name, "route", step.id, "asks", (f"{marker}: {rule.pause}",))
    return Line(name, "route", step.id, author=marker)


def _placed(line: Line, ready: bool, held: bool, world: World) -> Line:
    """Its state, now that it is known whether its turn has come."""
    if held and line.name in world.book.begun:
        return replace(line, state="running")
    if line.state == "asks":
        return line if ready else replace(line, state="waiting")
    if not line.reasons:
        return line
    if line.name in world.book.steps and line.name not in world.book.returned:
        return replace(line, state="stale")
    return replace(line, state="next" if ready else "waiting")


def _moves(step: Step, lines: list[Line], world: World) -> bool:
    """Whether an implement step, once its phases are done again, is another one for the steps that follow it."""
    if step.kind != "implement" or _faulty(lines) or not any(line.reasons for line in lines):
        return False
    return not away(world) and bool(world.digest(world.phases(step)))


def _faulty(lines: list[Line]) -> bool:
    return any(line.role == FAULT for line in lines)


def _following(line: Line, moved: set[str]) -> Line:
    if not moved or line.reasons or line.role not in ("step", "item"):
        return line
    return replace(line, state="done", reasons=(f"the phases of {', '.join(sorted(moved))}, which it follows, change",))


def _in_turn(lines: list[Line]) -> list[Line]:
    """Within a step: a phase waits for the one before it, a gate for its step; items wait for nobody."""
    found: list[Line] = []
    for line in lines:
        behind = line.role != "item" and any(other.state not in SETTLED for other in found)
        found.append(replace(line, state="waiting") if behind and line.state in ("next", "asks") else line)
    return found


def _perhaps(line: Line, step: Step, changing: Mapping[str, str], undecided: str, world: World) -> Line:
    """What hangs on the outcome of something before it."""
    if undecided and line.reasons:
        return replace(line, maybe=f"if {undecided} leads there")
    if line.reasons or not changing or line.role in ("clarify", "route"):
        return line
    hit = next((path for path in _rests_on(line, step, world) if path in changing), "")
    return replace(line, maybe=f"if {changing[hit]} changes {hit}") if hit else line


def _rests_on(line: Line, step: Step, world: World) -> list[str]:
    """The files whose change would make it stale."""
    if line.role in ("phase", "phases"):
        return [world.phases(step)]
    one = (world.step(line.name) if line.role == "item" else None) or step
    paths = [path for read in one.reads for path in world.place.expand(read.path)]
    paths += [_CODE] if world.reviews_code(step) else []
    coded = [found for name in world.before(step.id) if (found := world.flow.step(name)) and found.kind == "implement"]
    paths += [world.phases(found) for found in coded]
    return [*paths, *(world.path(said) for said in step.makes)] if line.role == "gate" else paths
