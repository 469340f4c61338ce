"""From plans to doit tasks: a node becomes a `Task`, the freshness of a step an `uptodate` object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from doit import Globals
from doit.task import DelayedLoader, Task

from doflow.config import uptodate_stamp
from doflow.engine.doit import actions
from doflow.engine.doit.actions import Act, Judge
from doflow.engine.doit.backend import Backend
from doflow.engine.doit.dependencies import Dependencies, Judgement
from doflow.engine.lifecycle import apply_options, recovery, resolve_run, start
from doflow.engine.lifecycle.dot_mirror import DotMirror
from doflow.engine.lifecycle.session import ActiveRun, Session
from doflow.engine.lifecycle.status_file import StatusFile
from doflow.engine.steps import implement
from doflow.flow import expansion, plan as plans
from doflow.flow.model import Step
from doflow.flow.plan import Node
from doflow.runs import freshness
from doflow.runs.context import Options, RunContext, run_params
from doflow.supervise import ownership
from doflow.util.errors import DoflowError, UsageError
from doflow.util.process import runner

Steer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
#: settings of every task: output is not captured in memory
COMMON: Mapping[str, Any] = {"io": {"capture": False}, "verbosity": 2}


def flow_tasks(session: Session, flow: str, given: Mapping[str, Any]) -> Iterator[Task]:
    """The tasks of one flow, as this command needs them."""
    about = session.project.about[flow]
    if session.executing and flow not in session.selected:
        yield Task(flow, None, doc=about)
        return
    stamp = _stamp(session, flow, given) if session.executing else None
    if stamp is not None:
        Backend.asleep = not session.works
        session.found(flow, str(stamp["run"]))
        yield from _stamped_tasks(flow, about, stamp)
        return

    try:
        work = open_run(session, flow, given)
        files = Dependencies(work.context, session.executing, alone=not session.executing or len(session.selected) == 1)
    except DoflowError as error:
        if session.executing:
            raise
        session.tell(str(error))  # listing: one broken run does not hide other flows
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
    options = _options(given, flow)
    context = RunContext(
        session.root, expansion.expand_flow(found, run_params(run, found)), run, opened.settings(), planned, session.environ,
        session.on_event, options, session.executing,
    )  # fmt: skip
    work = ActiveRun(context, StatusFile(context))
    work.dot_mirror = (
        _open_dot_mirror(context, session)
        if session.executing and context.flow.file.endswith((".dot", ".gv"))
        else None
    )
    session.add(work)
    if not run.fresh and not options.reopen and context.head.branch != run.branch:
        context.freeze(resolve_run.is_finished(session, run))
    if session.executing:
        named = options.force or options.completed or options.budget
        if named or (not run.fresh and run.branch != context.head.branch):
            apply_options.validate_options(context)
        _ready(session, work)
    return work


def _open_dot_mirror(context: RunContext, session: Session) -> Any:
    """Mirror the statuses of the run into its DOT file, locked against other processes."""

    echo = DotMirror(context)
    echo.lock = ownership.lock_for_run(str(session.root), context.flow.file, session.command)
    return echo


def _options(given: Mapping[str, Any], flow: str) -> Options:
    return Options(
        bool(given.get("next")), _names(given.get("force"), flow), _names(given.get("completed"), flow),
        bool(given.get("reopen")), bool(given.get("auto_approve")), given.get("agent") or "",
        given.get("budget") or "", bool(given.get("record")),
    )  # fmt: skip


def _ready(session: Session, work: ActiveRun) -> None:
    """Recover from a killed process, and mark the steps of --completed as done."""
    recovery.sweep(work.context)
    if not work.context.run.fresh:
        recovery.recover(work.context, work.fence)
        if work.context.flow.inputs and not work.context.frozen:
            start.write_subflow_inputs(work.context)
    if work.context.options.completed:
        apply_options.adopt_completed(work.context, lambda: session.begin(work))


def _names(text: Any, flow: str) -> frozenset[str]:
    return frozenset(name.strip().removeprefix(f"{flow}:") for name in str(text or "").split(",") if name.strip())


def _task(session: Session, work: ActiveRun, node: Node, files: Dependencies) -> Task:
    step = work.context.flow.step(node.step)
    assert step is not None
    act, judge = actions.step_action(session, work, node, step)
    own = node.role == "step"
    return FlowTask(
        node.name, [act], file_dep=files.file_dep(step) if own else (),
        targets=session.declare(node.name, files.targets(step)) if own else (),
        task_dep=list(node.deps), calc_dep=[node.router] if node.router else (), uptodate=[UpToDate(judge)],
        subtask_of=work.context.flow.name, doc=node.doc, steer=steer(work, node) if node.router else None, **COMMON,
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
                    calc_dep=routers[:1], has_subtask=True, doc=plan.about, steer=steer_flow(work))  # fmt: skip


def _stamped_tasks(flow: str, about: str, stamp: Mapping[str, Any]) -> Iterator[Task]:
    """Tasks of a run that is unchanged since it completed: all up to date, without checking."""
    names: Any = stamp["steps"]
    for name in names:
        yield Task(name, None, uptodate=[True], subtask_of=flow)
    yield Task(flow, None, task_dep=list(names), has_subtask=True, doc=about)


def broken_flow(session: Session, name: str, shown: str) -> Iterator[Task]:
    """The task of an invalid flow: it fails with the reason."""
    words = session.project.broken[name]

    def refuse() -> object:
        return actions.refuse(session, words)

    yield Task(shown, [refuse], doc="broken: " + words.splitlines()[0], **COMMON)


def _stamp(session: Session, flow: str, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stamp that answers this command, if it only names the goal or the run."""
    plain = {"goal", "run"}
    if session.always or any(value for name, value in given.items() if name not in plain):
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
    about = {"subtask_of": work.context.flow.name, "doc": node.doc}
    waits: dict[str, Any] = {"task_dep": list(node.deps), "calc_dep": [node.router] if node.router else []}

    def real() -> Iterator[Task]:
        before, names = list(waits["task_dep"]), []
        try:
            members = list(_members(session, work, node, looking=False))
        except DoflowError as error:
            yield _unreadable(session, work, node, about, waits, error)
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
    yield FlowTask(node.name, None, loader=loader, steer=steer(work, node), **about, **waits)
    known: list[_Member] = []
    with suppress(DoflowError):  # an unreadable file is reported when the group runs: it may be regenerated before
        known = list(_members(session, work, node, looking=True))
    for member in known:
        yield Task(member.name, None, loader=loader, subtask_of=node.name, doc=member.doc,
                   task_dep=list(waits["task_dep"]))  # fmt: skip


def _unreadable(session: Session, work: ActiveRun, node: Node, about: Any, waits: Any, error: DoflowError) -> Task:
    """A failing task for a group whose list cannot be read."""

    def fail() -> object:
        return actions.broken(session, work, error)

    return Task(node.name, [fail], task_dep=list(waits["task_dep"]), **about, **COMMON)


def _members(session: Session, work: ActiveRun, node: Node, looking: bool) -> Iterator[_Member]:
    step = work.context.flow.step(node.step)
    assert step is not None
    if node.role == "each":
        yield from _items(session, work, node, step, looking)
    else:
        yield from _phases(session, work, node, step, looking)


def _phases(session: Session, work: ActiveRun, node: Node, step: Step, looking: bool) -> Iterator[_Member]:
    context = work.context
    there = bool(context.files.digest(context.phases(step)))
    if not there and (looking or not session.executing):
        return
    if not looking and session.executing and not context.frozen:
        recovery.at_head(context, step)
    if trouble := None if looking else implement.find_work_list_problem(step, context):
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
    if work.begun:
        context.events.add("warning", step=step.id, message=message)
    elif step.id not in context.record.steps:
        session.warn(f"warning: {message}")


class FlowTask(Task):  # type: ignore[misc]
    """A task whose dependencies come from the answer of a router."""

    def __init__(self, *args: Any, steer: Steer | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self.steer = steer

    def update_deps(self, deps: Mapping[str, Any]) -> None:
        super().update_deps(self.steer(deps) if self.steer is not None and "order" in deps else deps)


class UpToDate:
    """The one up-to-date object of a task; doit calls it, `doit info` prints it."""

    def __init__(self, judge: Callable[[Mapping[str, Any]], Judgement]) -> None:
        self._judge = judge
        self._reasons: tuple[str, ...] = ()

    def __call__(self, task: Task, values: Mapping[str, Any]) -> bool:
        judgement = self._judge(values)
        self._reasons = judgement.reasons
        memory = Globals.dep_manager.backend
        if not isinstance(memory, Backend):  # another backend, from the command line: it does not know our files
            task.file_dep = set()
        else:
            memory.judged(task.name, judgement)
            if judgement.files is not None:  # earlier steps may have created or removed some
                task.file_dep = set(judgement.files)
        return not self._reasons

    def __repr__(self) -> str:
        return f"stale: {'; '.join(self._reasons)}" if self._reasons else "up to date"


def steer(work: ActiveRun, node: Node) -> Steer:
    """The dependencies of a step after a router, once the route is known."""

    def deps(answer: Mapping[str, Any]) -> Mapping[str, Any]:
        plan = work.context.plan
        order: list[str] = list(answer["order"])
        turns = [name for name in order[order.index(answer["router"]) + 1 :] if name in plan.routes]
        if node.step not in order:  # the next router may still select it
            return {"calc_dep": [plan.ends[name] for name in turns[:1]]}

        later = [name for name in turns if order.index(name) < order.index(node.step)]
        if later:
            return {"calc_dep": [plan.ends[later[-1]]]}
        before = plans.predecessors(plan, order)[node.step]
        return {"task_dep": [plan.ends[name] for name in before if plan.ends[name] != plan.ends[answer["router"]]]}

    return deps


def steer_flow(work: ActiveRun) -> Steer:
    """The dependencies of the flow task: the steps on the route, up to the next router."""

    def deps(answer: Mapping[str, Any]) -> Mapping[str, Any]:
        plan = work.context.plan
        order: list[str] = list(answer["order"])
        rest = order[order.index(answer["router"]) + 1 :]
        turn = next((name for name in rest if name in plan.routes), None)
        if turn is None:
            return {"task_dep": [plan.ends[name] for name in rest]}
        upto = rest[: rest.index(turn)]
        return {"task_dep": [plan.ends[name] for name in upto], "calc_dep": [plan.ends[turn]]}

    return deps
