"""From plans to doit tasks: a node becomes a `Task`, the freshness of a step an `uptodate` object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from doit.task import DelayedLoader, Task

from doflow.config import uptodate_stamp
from doflow.engine.doit import actions
from doflow.engine.doit.actions import Act, Judge
from doflow.engine.doit.backend import Backend, UpToDate
from doflow.engine.doit.dependencies import Dependencies
from doflow.engine.jobs import adoption
from doflow.engine.lifecycle import recovery, resolve_run, start
from doflow.engine.lifecycle.session import ActiveRun, Session
from doflow.engine.lifecycle.status_file import StatusFile
from doflow.flow import expansion, plan as plans
from doflow.flow.model import Outcome, Status, Step
from doflow.flow.plan import Node, Plan
from doflow.runs import freshness
from doflow.runs.context import Options, RunContext, run_params
from doflow.util.errors import DoflowError, UsageError
from doflow.util.process import runner

#: settings of every task: output is not captured in memory
COMMON: Mapping[str, Any] = {"io": {"capture": False}, "verbosity": 2}


def flow_tasks(session: Session, flow: str, given: Mapping[str, Any]) -> Iterator[Task]:
    """The tasks of one flow, as this command needs them."""
    about = session.project.about[flow]
    if session.executing and flow not in session.selected:
        yield Task(flow, None, doc=about)
        return
    stamp = _stamp(session, flow, given) if session.executing else None
    if stamp is not None:  # unchanged since it completed: all is up to date, without checking
        Backend.asleep = not session.works
        session.found(flow, str(stamp["run"]))
        for name in stamp["steps"]:
            yield Task(name, None, uptodate=[True], subtask_of=flow)
        yield Task(flow, None, task_dep=list(stamp["steps"]), has_subtask=True, doc=about)
        return
    try:
        work = open_run(session, flow, given)
        files = Dependencies(work.context, session.executing, alone=not session.executing or len(session.selected) == 1)
    except DoflowError as error:
        if session.executing:
            raise
        session.warn_once(str(error))  # listing: one broken run does not hide other flows
        yield Task(flow, None, doc=about)
        return
    for node in work.context.plan.nodes:
        if node.role in ("phases", "each"):
            yield from _group_tasks(session, work, node, files)
        else:
            yield _task(session, work, node, files)
    yield _flow_task(flow, work)


def open_run(session: Session, flow: str, given: Mapping[str, Any]) -> ActiveRun:
    """The run and its context; when a run starts, what a killed one left is recovered first."""
    if session.executing:
        session.lock()
        runner.warm()
    Backend.asleep = False
    opened = session.project
    if session.executing and "doflow.yaml" in opened.broken:
        raise UsageError(opened.broken["doflow.yaml"])
    run = resolve_run.find_run(session, flow, resolve_run.requested_run(session, flow, given))
    found, planned = resolve_run.flow_and_plan(session, run)
    redo = _step_names(given, "redo", flow)
    again = {f"{step.id}:{name}" for step in found.steps if step.kind == "implement" and not run.fresh for name in redo}
    options = Options(
        bool(given.get("next")), _step_names(given, "force", flow) | again, _step_names(given, "completed", flow),
        bool(given.get("reopen")), bool(given.get("auto_approve")), given.get("agent") or "",
        given.get("budget") or "", bool(given.get("record")), redo,
        given.get("task") or "", bool(given.get("optional")),
    )  # fmt: skip
    if found.has_params_in_paths:
        found = expansion.expand_flow(found, run_params(run, found))
    context = RunContext(
        session.root, found, run, opened.settings(), planned, session.environ,
        session.on_event, options, session.executing,
    )  # fmt: skip
    work = ActiveRun(context, StatusFile(context))
    if session.executing and context.flow.file.endswith((".dot", ".gv")):
        from doflow.engine.lifecycle import dot_mirror  # other flows need none of it

        work.dot_mirror = dot_mirror.DotMirror(context, session.command, bool(given.get("new")))
    session.add(work)
    if not run.fresh and not options.reopen and context.head.branch != run.branch:
        context.freeze(resolve_run.is_finished(session, run))
    if session.executing:
        named = options.force or options.completed or options.budget or options.task
        if named or (not run.fresh and run.branch != context.head.branch):
            adoption.validate_options(context)
        _ready(session, work)
    return work


def _ready(session: Session, work: ActiveRun) -> None:
    """Recover from a killed process, and mark the steps of --completed as done."""
    context = work.context
    start.remove_temporaries(context)
    if not context.run.fresh:
        recovery.recover(context, work.fence)
        if context.flow.inputs and not context.frozen:
            start.write_subflow_inputs(context)
    if context.options.completed:
        adoption.adopt_completed(context, lambda: session.begin(work))
    if context.flow.has_given_list and not context.frozen:
        adoption.adopt_ticked_phases(context, lambda: session.begin(work))


def _step_names(given: Mapping[str, Any], option: str, flow: str) -> frozenset[str]:
    names = str(given.get(option) or "").split(",")
    return frozenset(name.strip().removeprefix(f"{flow}:") for name in names if name.strip())


def _task(session: Session, work: ActiveRun, node: Node, files: Dependencies) -> Task:
    step = work.context.flow.step(node.step)
    assert step is not None
    act, judge = actions.step_action(session, work, node, step)
    own = node.role == "step"
    return FlowTask(
        node.name, [act], file_dep=files.file_dep(step) if own else (),
        targets=session.declare(node.name, files.targets(step)) if own else (),
        task_dep=list(node.deps), calc_dep=[node.router] if node.router else (), uptodate=[UpToDate(judge)],
        subtask_of=work.context.flow.name, doc=node.doc, plan=work.context.plan, step=step.id, **COMMON,
    )  # fmt: skip


def _flow_task(flow: str, work: ActiveRun) -> Task:
    """The task of the flow: all steps before a router, and after it those on its route."""
    plan = work.context.plan
    open_ = {node.step for node in plan.nodes if node.router}  # with all their parts: a route may skip them
    wanted = frozenset(plan.pipeline)
    settled = [node.name for node in plan.nodes if node.step in wanted and node.step not in open_]
    routers = [node.router for node in plan.nodes if node.router and node.step in wanted]
    if not routers:
        routers = [plan.ends[name] for name in plan.pipeline if name in plan.routes]
    return FlowTask(flow, None, task_dep=[name for name in settled if name not in routers[:1]],
                    calc_dep=routers[:1], has_subtask=True, doc=plan.about, plan=plan)  # fmt: skip


def broken_flow(session: Session, name: str, shown: str, given: Mapping[str, Any]) -> Iterator[Task]:
    """The task of an invalid flow: it fails with the reason."""
    reason = session.project.broken[name]
    failure = Outcome(Status.FAILED, reason)
    yield Task(shown, [(actions.report, [session, failure])], doc="broken: " + reason.splitlines()[0], **COMMON)


def _stamp(session: Session, flow: str, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stamp that answers this command, if it only names the goal or the run."""
    if session.always or any(value for name, value in given.items() if name not in ("goal", "run")):
        return None
    stamp = uptodate_stamp.valid_stamp(
        str(session.root), flow, given.get("goal"), given.get("run") or "", dict(session.environ)
    )
    parts = [word for word in session.asked if word.startswith(f"{flow}:")]
    known: Any = stamp["steps"] if stamp is not None else ()
    return stamp if all(word in known for word in parts) else None  # a phase or a gate by name needs the full lookup


class _Member(NamedTuple):
    """One task of a group; `step`: the step it is of, or its own; `chained` = it waits for the one before it."""

    name: str
    doc: str
    act: Act
    judge: Judge
    step: Step
    chained: bool


def _group_tasks(session: Session, work: ActiveRun, node: Node, files: Dependencies) -> Iterator[Task]:
    """In a run: a delayed group with placeholders for the members known now. Otherwise: the current members."""
    step = work.context.flow.step(node.step)
    assert step is not None
    find_members = partial(_items if node.role == "each" else _phases, session, work, node, step)
    about = {"subtask_of": work.context.flow.name, "doc": node.doc}
    waits: dict[str, Any] = {"task_dep": list(node.deps), "calc_dep": [node.router] if node.router else []}

    def real() -> Iterator[Task]:
        before, names = list(waits["task_dep"]), []
        try:
            members = list(find_members(looking=False))
        except DoflowError as error:  # the list cannot be read
            failing = (actions.fail_group, [session, work, error])
            yield Task(node.name, [failing], task_dep=list(waits["task_dep"]), **about, **COMMON)
            return
        for member in members:
            targets = [] if member.chained else session.declare(member.name, files.targets(member.step))
            yield Task(member.name, [member.act], file_dep=files.file_dep(member.step), targets=targets,
                       uptodate=[UpToDate(member.judge)], task_dep=before, subtask_of=node.name, doc=member.doc,
                       **COMMON)  # fmt: skip
            names.append(member.name)
            before = [member.name] if member.chained else before
        yield Task(node.name, None, task_dep=names or list(waits["task_dep"]), has_subtask=True, **about)

    if not session.executing:
        yield from real()
        return
    loader = DelayedLoader(real)
    loader.basename = node.name
    yield FlowTask(node.name, None, loader=loader, plan=work.context.plan, step=step.id, **about, **waits)
    known: list[_Member] = []
    with suppress(DoflowError):  # an unreadable file is reported when the group runs: it may be regenerated before
        known = list(find_members(looking=True))
    for member in known:
        yield Task(member.name, None, loader=loader, subtask_of=node.name, doc=member.doc,
                   task_dep=list(waits["task_dep"]))  # fmt: skip


def _phases(session: Session, work: ActiveRun, node: Node, step: Step, looking: bool) -> Iterator[_Member]:
    context = work.context
    if (looking or not session.executing) and not context.files.digest(context.phases(step)):
        return
    if not looking and session.executing and not context.frozen:
        recovery.at_head(context, step)
    if trouble := None if looking else actions.kind("implement").find_work_list_problem(step, context):
        raise trouble
    phases = {phase.number: phase for phase, _ in freshness.phase_keys(step, context)}
    for phase in phases.values():
        act, judge = actions.phase_action(session, work, step, phase.number)
        yield _Member(f"{node.name}:{phase.number}", phase.title, act, judge, step, True)


def _items(session: Session, work: ActiveRun, node: Node, step: Step, looking: bool) -> Iterator[_Member]:
    items = work.context.items(step)
    if not items and not looking and session.executing:
        _nothing(session, work, step)
    for item in items:
        name = f"{work.context.flow.name}:{item.id}"
        act, judge = actions.item_action(session, work, item)
        yield _Member(name, dict(item.params).get("item", ""), act, judge, item, False)


def _nothing(session: Session, work: ActiveRun, step: Step) -> None:
    """Warn about an empty list: it may be a mistake."""
    context = work.context
    path = context.files.path(step.foreach) if isinstance(step.foreach, str) else ""
    if context.frozen or not context.files.digest(path):
        return
    message = f"{path} lists no items: {step.id} has nothing to do"
    if work.started:
        context.events.add("warning", step=step.id, message=message)
    elif step.id not in context.record.steps:
        session.warn(f"warning: {message}")


class FlowTask(Task):  # type: ignore[misc]
    """A task whose dependencies come from the answer of a router: of a step, or of the flow (`step` = '')."""

    def __init__(self, *args: Any, plan: Plan, step: str = "", **given: Any) -> None:
        super().__init__(*args, **given)
        self._plan, self._step = plan, step

    def update_deps(self, deps: Mapping[str, Any]) -> None:
        super().update_deps(_routed_deps(self._plan, self._step, deps) if "order" in deps else deps)


def _routed_deps(plan: Plan, step: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a step waits for, once the route is known; of the flow: the steps up to the next router."""
    order: list[str] = list(answer["order"])
    rest = order[order.index(answer["router"]) + 1 :]
    turns = [name for name in rest if name in plan.routes]
    if not step:
        settled = rest[: rest.index(turns[0])] if turns else rest
        return {
            "task_dep": [plan.ends[name] for name in settled],
            "calc_dep": [plan.ends[name] for name in turns[:1]],
        }
    if step not in order:  # the next router may still select it
        return {"calc_dep": [plan.ends[name] for name in turns[:1]]}
    later = [name for name in turns if order.index(name) < order.index(step)]
    if later:
        return {"calc_dep": [plan.ends[later[-1]]]}
    before = plans.predecessors(plan, order)[step]
    return {"task_dep": [plan.ends[name] for name in before if plan.ends[name] != plan.ends[answer["router"]]]}
