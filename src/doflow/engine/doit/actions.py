"""The actions of doflow's doit tasks, and how each decides whether it is up to date."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from doit import Globals
from doit.exceptions import TaskFailed

from doflow.engine.doit import dependencies
from doflow.engine.doit.backend import FORGOTTEN
from doflow.engine.doit.dependencies import Judgement
from doflow.engine.jobs import adoption, commit
from doflow.engine.lifecycle.session import CODES, ActiveRun, Session
from doflow.engine.steps import gate
from doflow.flow import plan
from doflow.flow.model import Outcome, Status, Step
from doflow.flow.plan import Node
from doflow.runs import freshness, next_steps
from doflow.util import atomic_files, errors, hints, state_folder
from doflow.util.errors import DoflowError, Undecided
from doflow.util.hints import SAME_COMMAND
from doflow.util.process import runner

Act = Callable[[], object]
Judge = Callable[[Mapping[str, Any]], Judgement]


class Stop(TaskFailed):  # type: ignore[misc]
    """A failed task: carries the exit code, and a message instead of a traceback."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        self.code = CODES.get(outcome.status.value, 1)


def step_action(session: Session, work: ActiveRun, node: Node, step: Step) -> tuple[Act, Judge]:
    """Action and judgement of one node."""
    context = work.context
    if node.role == "gate":
        return lambda: _run(session, work, lambda: _ask_gate(work, step)), lambda _: _gate(step, work)
    if node.role == "clarify":
        return lambda: _run(session, work, lambda: gate.ask_questions(step, context)), lambda _: _clarify(step, work)
    if node.role == "route":
        return lambda: _route(session, work, step), lambda values: _routed(step, work, values)
    return (
        lambda: _run_in_slot(
            session, work, step, lambda: _adopted(work, step) or kind(step.kind).run(step, context, work.fence)
        ),
        lambda _: _step(session, work, step),
    )


def _adopted(work: ActiveRun, step: Step) -> Outcome | None:
    """A step of a DOT pipeline that was done before the run began."""
    return Outcome(Status.DONE) if work.dot_mirror is not None and work.dot_mirror.adopts(step) else None


def item_action(session: Session, work: ActiveRun, item: Step) -> tuple[Act, Judge]:
    """One item of a `foreach`: a step of its own, whose group is done when all of them are."""

    def run() -> Outcome:
        outcome: Outcome = kind(item.kind).run(item, work.context, work.fence)
        if outcome.ok:
            commit.complete_group(work.context, item.id.partition(":")[0])
        return outcome

    return lambda: _run_in_slot(session, work, item, run), lambda _: _step(session, work, item)


def phase_action(session: Session, work: ActiveRun, step: Step, number: str) -> tuple[Act, Judge]:
    return (
        lambda: _run_in_slot(
            session, work, step, lambda: kind("implement").run(step, number, work.context, work.fence)
        ),
        lambda _: _phase(session, work, step, number),
    )


def _parallel_group(step: Step) -> str:
    """The kind of steps that a step may run in parallel with; '' = none."""
    alone = step.repair > 0 or step.writes is not None or step.protect
    if step.writes or step.kind == "review" or (step.kind == "shell" and alone):
        return ""
    return {"shell": "commands", "agent": "agents"}.get(step.kind, "")


def kind(name: str) -> Any:
    """The module for steps of this kind, imported when there is such a step."""
    return import_module(f"doflow.engine.steps.{'bugfix_session' if name == 'session' else name}")


def fail_group(session: Session, work: ActiveRun, error: DoflowError) -> object:
    """The action of a group of tasks that could not be created."""

    def run() -> Outcome:
        raise error

    return _run(session, work, run)


def _run_in_slot(session: Session, work: ActiveRun, step: Step, run: Callable[[], Outcome]) -> object:
    """Run a step when no other one is in its way, and none after a rate limit."""
    if not session.executing:
        reason = "this doit does not use doflow's `run` command: doflow is not installed in its environment, or dodo.py hides it"
        hint = "pip install doflow in the environment of doit, and end dodo.py as doflow init writes it"
        return Stop(Outcome(Status.FAILED, reason, hint))
    if session.limited is not None:
        return Stop(session.limited)
    with work.slots.acquire(_parallel_group(step)):
        stop = _run(session, work, lambda: _asked_again(work, step) or run())
    if isinstance(stop, Stop) and stop.outcome.status is Status.RATE_LIMITED:
        session.limited = stop.outcome
    return stop


def _asked_again(work: ActiveRun, step: Step) -> Outcome | None:
    """A gate whose approved content was changed since, by anyone, asks again before the next step reads it."""
    name = step.id.partition(":")[0]
    for gated in gate.open_gates(work.context, name) if work.context.order.upstream(name) else ():
        outcome = work.asked.get(gated.id) or gate.ask_approval(gated, work.context)
        if not outcome.ok:
            work.asked[gated.id] = outcome
            return outcome
    return None


def ask_at_end(session: Session, work: ActiveRun, only_again: bool) -> None:
    """A run is not complete while a gate has no approval for what is there. `only_again`: it goes on later, so only the
    gates ask whose approved content has changed."""
    context = work.context
    gates = gate.open_gates(context)
    if only_again:
        known = context.record.approvals
        gates = tuple(step for step in gates if step.id in known and not gate.unfinished_reviser(step, context))
    for gated in gates:
        if stop := _run(session, work, lambda gated=gated: gate.ask_approval(gated, work.context)):  # type: ignore[misc]
            session.view.stopped(f"{work.context.flow.name}:{gated.id}.gate", stop.outcome)


def _run(session: Session, work: ActiveRun, run: Callable[[], Outcome]) -> Stop | None:
    if runner.stopping():
        return report(session, Outcome(Status.CANCELLED, "interrupted"))
    token = object()
    session.busy.add(token)
    try:
        session.begin(work)
        outcome = run()
    except (DoflowError, OSError) as error:
        outcome = _error_outcome(session, work, error)
    finally:
        session.busy.discard(token)
    return report(session, outcome)


def report(session: Session, outcome: Outcome) -> Stop | None:
    """Note the exit code of a task that did not succeed; returns what doit gets of it."""
    if outcome.ok:
        return None
    stop = Stop(outcome)
    session.note(stop.code)
    return stop


def _error_outcome(session: Session, work: ActiveRun, error: DoflowError | OSError) -> Outcome:
    """Turn an error into an outcome; log it if the run exists and the disk is writable."""
    if isinstance(error, OSError):
        place = error.filename if isinstance(error.filename, str | bytes) else work.context.root / state_folder.NAME
        error = atomic_files.io_error("use", os.fsdecode(place), error)
    steps = error.next
    if not work.started and work.context.run.fresh and not hints.resumes(steps):
        steps = (*steps, SAME_COMMAND)
    fields = next_steps.event_fields(error.advice, steps, work.context)
    event, status = ("paused", Status.PAUSED) if isinstance(error, Undecided) else ("error", Status.FAILED)
    outcome = Outcome(status, error.message, error.advice, next=steps)
    if work.written:
        with suppress(DoflowError, OSError):
            work.context.events.add(event, message=error.message, **fields)
            return outcome
    if session.json:  # it is not in the event log
        session.warn(errors.error_json(error.message, fields["hint"]).rstrip())
    return outcome


def _route(session: Session, work: ActiveRun, step: Step) -> object:
    marker = ""

    def run() -> Outcome:
        nonlocal marker
        outcome, marker = gate.route(step, work.context)
        return outcome

    stop = None if work.context.frozen else _run(session, work, run)
    return stop or {"order": list(work.context.order.active()), "router": step.id, "marker": marker}


def _step(session: Session, work: ActiveRun, step: Step) -> Judgement:
    context = work.context
    if context.run.fresh:
        return Judgement(("not run yet",))
    verdict = freshness.step_freshness(step, context)
    reasons = (*_forgotten(context.flow.name, step.id), *verdict.reasons)
    if not reasons and session.executing and not context.frozen:
        new = adoption.unrecorded_edits(context, verdict.edited)
        if new:
            session.begin(work)
            adoption.record_edits(context, step, new)
    record = context.record.steps.get(step.id)
    settled = _settled(session, work, step.id, reasons)
    return dependencies.judge_step(context, settled, record.reads if record else {}, verdict.key)


def _phase(session: Session, work: ActiveRun, step: Step, number: str) -> Judgement:
    context = work.context
    for phase, key in freshness.phase_keys(step, context):
        if phase.number == number:
            reasons = freshness.phase_freshness(step, phase, key, context).reasons
            name = f"{step.id}:{number}"
            record = context.record.steps.get(name)
            settled = _settled(session, work, name, (*_forgotten(context.flow.name, name), *reasons))
            path = dependencies.doit_path(context.root, context.phases(step))  # of the task list its own section counts
            recorded = {path: record.parts.get("section", "")} if record else None
            return Judgement(settled, frozenset([path]), recorded, {path: key.parts["section"]})
    return Judgement(("not in the task list",))


def _settled(session: Session, work: ActiveRun, name: str, reasons: tuple[str, ...]) -> tuple[str, ...]:
    """A finished run on another branch stays finished: out-of-date steps are reported, not run."""
    if reasons and work.context.frozen:
        if session.executing:
            why = "; ".join(reasons)
            session.warn(f"{name} would run again: {why} (the run is finished; use --reopen to continue it)")
        return ()
    return reasons


def _ask_gate(work: ActiveRun, step: Step) -> Outcome:
    outcome = _adopted(work, step) or gate.ask_approval(step, work.context)
    if not outcome.ok:
        work.asked[step.id] = outcome
    return outcome


def _gate(step: Step, work: ActiveRun) -> Judgement:
    context = work.context
    settled = not context.run.fresh and (gate.is_approved(step, context) or gate.unfinished_reviser(step, context))
    settled = context.frozen or bool(settled)
    return Judgement(() if settled else ("waiting for your approval",))


def _clarify(step: Step, work: ActiveRun) -> Judgement:
    settled = work.context.frozen or not gate.open_questions(step, work.context)
    return Judgement(() if settled else ("waiting for answers",))


def _routed(step: Step, work: ActiveRun, values: Mapping[str, Any]) -> Judgement:
    record = work.context.record.steps.get(step.id)
    same = record is not None and record.marker and values.get("marker") == record.marker
    rule = plan.find_route(step, record.marker) if record is not None and same else None
    if rule is not None and rule.variant:  # an earlier process took the route and wrote no lock file after it
        work.context.record.choose_variant(rule.variant)
    return Judgement(() if same else ("the marker has changed",))


def _forgotten(flow: str, name: str) -> tuple[str, ...]:
    manager = Globals.dep_manager
    tasks = {f"{flow}:{name}", f"{flow}:{name.partition(':')[0]}"}
    forgotten = manager is not None and any(manager.backend.get(task, FORGOTTEN) for task in tasks)
    return ("forgotten with doit forget",) if forgotten else ()
