"""What a doit task of ours does, and how it is judged up to date."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from doit.exceptions import TaskFailed

from doflow.engine.doit.backend import FORGOTTEN
from doflow.engine.lifecycle.session import CODES, Session, Work
from doflow.flow.model import Outcome, Status, Step
from doflow.flow.plan import Node
from doflow.runs.context import STATE
from doflow.util import atomic_files as files
from doflow.util.errors import AGAIN, DoflowError, Undecided
from doflow.util.process import runner as process
from doflow.util.records import later

if TYPE_CHECKING:
    from doflow.engine.jobs import adoption as adopting, commit as settle
    from doflow.runs.freshness import freshness as judge
else:
    adopting, settle = map(later, ("doflow.engine.jobs.adoption", "doflow.engine.jobs.commit"))
    judge = later("doflow.runs.freshness.freshness")

Act = Callable[[], object]
Judge = Callable[[Mapping[str, Any]], tuple[str, ...]]


class Stop(TaskFailed):  # type: ignore[misc]
    """A task that did not end well: with our exit code, and words instead of a traceback."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        self.code = CODES.get(outcome.status.value, 1)


def of(session: Session, work: Work, node: Node, step: Step) -> tuple[Act, Judge]:
    """Action and judgement of one node."""
    world = work.world
    if node.role == "gate":
        return lambda: _plain(session, work, lambda: _kind("gate").ask(step, world)), lambda _: _gate(step, work)
    if node.role == "clarify":
        return lambda: _plain(session, work, lambda: _kind("gate").clarify(step, world)), lambda _: _clarify(step, work)
    if node.role == "route":
        return lambda: _route(session, work, step), lambda values: _routed(step, work, values)
    kind = _kind(step.kind)
    return (
        lambda: _guarded(session, work, _company(step), lambda: kind.run(step, world, work.fence)),
        lambda _: _step(session, work, step),
    )


def of_item(session: Session, work: Work, item: Step) -> tuple[Act, Judge]:
    """One item of a `foreach`: a step of its own, whose group is done when all of them are."""
    kind = _kind(item.kind)

    def run() -> Outcome:
        outcome: Outcome = kind.run(item, work.world, work.fence)
        if outcome.ok:
            settle.complete_group(work.world, item.id.partition(":")[0])
        return outcome

    return lambda: _guarded(session, work, _company(item), run), lambda _: _step(session, work, item)


def of_phase(session: Session, work: Work, step: Step, number: str) -> tuple[Act, Judge]:
    return (
        lambda: _guarded(session, work, "", lambda: _kind("implement").run(step, number, work.world, work.fence)),
        lambda _: _phase(session, work, step, number),
    )


def _company(step: Step) -> str:
    """With whom a step may run side by side; '' = with nobody."""
    alone = step.repair > 0 or step.writes is not None or step.protect
    if step.writes or step.kind == "review" or (step.kind == "shell" and alone):
        return ""
    return {"shell": "commands", "agent": "agents"}.get(step.kind, "")


def _kind(name: str) -> Any:
    """The module that does steps of this kind; the others are not even imported."""
    if name not in _kinds:
        _kinds[name] = import_module(f"doflow.engine.steps.{'bugfix_session' if name == 'session' else name}")
    return _kinds[name]


_kinds: dict[str, Any] = {}


def refuse(session: Session, words: str) -> Stop:
    session.note(1)
    return Stop(Outcome(Status.FAILED, words))


def broken(session: Session, work: Work, error: DoflowError) -> object:
    """A task that could not even be made."""

    def run() -> Outcome:
        raise error

    return _plain(session, work, run)


_NOT_OURS = "this doit does not know doflow's `run`: doflow is not installed beside it, or dodo.py hides it"


def _guarded(session: Session, work: Work, company: str, run: Callable[[], Outcome]) -> object:
    if not session.executing:
        return Stop(
            Outcome(Status.FAILED, _NOT_OURS, "pip install doflow, beside doit; dodo.py ends as doflow init writes it")
        )
    if session.limited is not None:
        return Stop(session.limited)
    with work.turn.take(company):
        outcome = _safely(session, work, run)
    if outcome.status is Status.RATE_LIMITED:
        session.limited = outcome
    return _said(session, outcome)


def _plain(session: Session, work: Work, run: Callable[[], Outcome]) -> object:
    return _said(session, _safely(session, work, run))


def _safely(session: Session, work: Work, run: Callable[[], Outcome]) -> Outcome:
    if process.stopping():
        return Outcome(Status.CANCELLED, "interrupted")
    token = object()
    session.busy.add(token)
    try:
        session.begin(work)
        return run()
    except (DoflowError, OSError) as error:
        return _broke(session, work, error)
    finally:
        session.busy.discard(token)


def _broke(session: Session, work: Work, error: DoflowError | OSError) -> Outcome:
    """Told in words, and written down if there is a run yet and the disk still takes it."""
    if isinstance(error, OSError):
        place = error.filename or work.world.root / STATE
        error = files.broke("use", os.fsdecode(place), error)
    hint = error.hint
    if not work.begun and work.world.run.fresh and "doit " not in hint:
        hint = f"{hint}   {AGAIN}" if hint else AGAIN
    told = {"message": error.message, "hint": hint}
    event, status = ("paused", Status.PAUSED) if isinstance(error, Undecided) else ("error", Status.FAILED)
    if work.written:
        with suppress(DoflowError, OSError):
            work.world.ledger.add(event, **told)
            return Outcome(status, error.message, hint)
    if session.json:  # no event will tell it
        from doflow.util import json_error as early

        session.warn(early.line(error.message, hint).rstrip())
    return Outcome(status, error.message, hint)


def _said(session: Session, outcome: Outcome) -> object:
    if outcome.ok:
        return None
    stop = Stop(outcome)
    session.note(stop.code)
    return stop


def _route(session: Session, work: Work, step: Step) -> object:
    from doflow.engine.steps import gate

    outcome, marker = Outcome(Status.FAILED), ""

    def run() -> Outcome:
        nonlocal outcome, marker
        outcome, marker = gate.route(step, work.world)
        return outcome

    if not work.world.frozen:
        stop = _plain(session, work, run)
        if stop is not None:
            return stop
    return {"order": list(work.world.order()), "router": step.id, "marker": marker}


def _step(session: Session, work: Work, step: Step) -> tuple[str, ...]:
    world = work.world
    if world.run.fresh:
        return ("it has not been done yet",)
    verdict = judge.of_step(step, world)
    reasons = (*_forgotten(world.flow.name, step.id), *verdict.reasons)
    if not reasons and session.executing and not world.frozen:
        new = adopting.unknown(world, verdict.edited)
        if new:
            session.begin(work)
            adopting.notice(world, step, new)
    return _settled(session, work, step.id, reasons)


def _phase(session: Session, work: Work, step: Step, number: str) -> tuple[str, ...]:
    for phase, key in judge.phase_keys(step, work.world):
        if phase.number == number:
            reasons = judge.of_phase(step, phase, key, work.world).reasons
            name = f"{step.id}:{number}"
            return _settled(session, work, name, (*_forgotten(work.world.flow.name, name), *reasons))
    return ("it is not in the task list",)


def _settled(session: Session, work: Work, name: str, reasons: tuple[str, ...]) -> tuple[str, ...]:
    """A finished run on another branch stays finished: what would be stale is told, not done."""
    if reasons and work.world.frozen:
        if session.executing:
            why = "; ".join(reasons)
            session.warn(f"{name} would be done again: {why} (the run is finished; --reopen lets it go on)")
        return ()
    return reasons


def _gate(step: Step, work: Work) -> tuple[str, ...]:
    if work.world.frozen or (not work.world.run.fresh and _kind("gate").approved(step, work.world)):
        return ()
    return ("it waits for you",)


def _clarify(step: Step, work: Work) -> tuple[str, ...]:
    if work.world.frozen:
        return ()
    return ("it waits for answers",) if _kind("gate").open_questions(step, work.world) else ()


def _routed(step: Step, work: Work, values: Mapping[str, Any]) -> tuple[str, ...]:
    record = work.world.book.steps.get(step.id)
    if record is None or values.get("marker") != record.marker or not record.marker:
        return ("the marker decides anew",)
    return ()


def _forgotten(flow: str, name: str) -> tuple[str, ...]:
    from doit import Globals

    manager = Globals.dep_manager
    asked = {f"{flow}:{name}", f"{flow}:{name.partition(':')[0]}"}
    told = manager is not None and any(manager.backend.get(task, FORGOTTEN) for task in asked)
    return ("you told doit to forget it",) if told else ()
