"""Our words into doit's: a plan becomes `Task` objects, a step's freshness an `uptodate` object, a run a `World`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doit.task import Task

from doflow.config import project, uptodate_stamp as hot
from doflow.engine.doit import namespace as creators
from doflow.engine.doit.backend import Backend
from doflow.engine.doit.task_types import IO, Deed, FlowTask, Fresh, Outline, ahead, rest
from doflow.engine.lifecycle.session import Session, Work
from doflow.util import bundle

if TYPE_CHECKING:
    from doflow.flow.plan import Node
    from doflow.runs.context import World
    from doflow.runs.options import Options

_FLAGS = (
    ("run", str, "", "the run that is meant: its name or number"),
    ("feature_dir", str, "", "the run's folder"),
    ("new", bool, False, "start a new run"),
    ("next", bool, False, "do only the next step that is not done"),
    ("force", str, "", "do these steps again: a,b"),
    ("completed", str, "", "take these steps as done: a,b"),
    ("reopen", bool, False, "let a finished run go on, or go on on another branch"),
    ("issue", str, "", "the issue this run belongs to"),
    ("branch", str, "", "the branch of a new run"),
    ("agent", str, "", "who does the steps, instead of what the flow says"),
    ("budget", str, "", "what the run may cost in all, whatever the settings say: 5, 500000tokens, none"),
    ("record", bool, False, "keep every call of an agent: what it was told, said, changed and used"),
    ("auto_approve", bool, False, "pass gates (never clarifications)"),
)


def namespace(
    root: str | None, words: Sequence[str] | None = None, own: dict[str, Any] | None = None
) -> dict[str, object]:
    """What a dodo.py must hold; `own`: what it held before. The project's own folder goes to the end of the import path,
    so that a file planted there cannot stand in for a library."""
    folder = project.find(root)
    ours = {"", str(folder), os.getcwd()}
    sys.path[:] = [path for path in sys.path if path not in ours] + [path for path in sys.path if path in ours]
    session = Session(folder, os.environ)
    session.words = sys.argv[1:] if words is None else words
    needed = {"doflow": session, "backend": "doflow", "dep_file": str(folder / project.STATE / "state.db")}
    config = creators.Config(needed, {"verbosity": 2, "default_tasks": []}, own or {})
    found: dict[str, object] = {"DOIT_CONFIG": config.whole}
    if own is not None:
        found["__dir__"] = config
    for name in session.project.about:
        params = [{"name": "goal", "long": "goal", "type": str, "default": None, "help": "what to build"}]
        params += [
            {
                "name": p,
                "long": p,
                "type": str,
                "default": None,
                "help": f"{about} (default: {default})" if default else about,
            }
            for p, about, _, default in session.project.params[name]
            if p != "goal"
        ]
        params += [
            {"name": flag, "long": flag.replace("_", "-"), "type": kind, "default": default, "help": about}
            for flag, kind, default, about in _FLAGS
        ]
        found[f"task_{name}"] = creators.creator(name, lambda flow, given: build(session, flow, given), params)
    for name in session.project.broken:
        if name.endswith(".yaml") or name in found:
            continue
        found[f"task_{creators.shown(name)}"] = creators.creator(name, lambda flow, given: _broken(session, flow), [])
    return found


def session_of(namespace: Mapping[str, Any]) -> Session:
    found = namespace["DOIT_CONFIG"]["doflow"]
    assert isinstance(found, Session)
    return found


def build(session: Session, flow: str, given: Mapping[str, Any]) -> Iterator[Task]:
    """The tasks of one flow, as this command needs them."""
    about = session.project.about[flow]
    if session.executing and flow not in session.selected:
        yield Task(flow, None, doc=about)
        return
    stamp = _stamp(session, flow, given) if session.executing else None
    if stamp is not None:
        Backend.asleep = not session.works
        session.found(flow, str(stamp["run"]))
        yield from _hot(flow, about, stamp)
        return
    from doflow.util.errors import DoflowError

    try:
        work = open_work(session, flow, given)
    except DoflowError as error:
        if session.executing:
            raise
        session.tell(str(error))  # looking: a run in trouble hides no other flow
        yield Task(flow, None, doc=about)
        return
    first = FlowTask(flow, (), io=IO, verbosity=2, subtask_of=flow)
    for node in work.world.plan.nodes:
        if node.role in ("phases", "each"):
            from doflow.engine.doit import groups

            yield from groups.fill(session, work, node)
        else:
            yield _task(session, work, node, first)
    yield _group(flow, work)


def open_work(session: Session, flow: str, given: Mapping[str, Any]) -> Work:
    """The run that is meant, its world, and, when a run begins, what a killed one left made good."""
    if session.executing:
        bundle.use()
        from doflow.util.process import runner as process

        session.lock()
        process.warm()

    from doflow.engine.lifecycle import resolve_run as meant
    from doflow.engine.lifecycle.status_file import Projection
    from doflow.flow import expansion as concrete
    from doflow.runs.context import World
    from doflow.util.errors import UsageError

    Backend.asleep = False
    opened = session.project
    if session.executing and "doflow.yaml" in opened.broken:
        raise UsageError(opened.broken["doflow.yaml"])
    run = meant.run(session, flow, meant.wish(session, flow, given))
    found, planned = meant.present(session, run)
    options = _options(given, flow)
    world = World(
        session.root, found, run, opened.settings(), planned, session.environ, session.hears, options, session.executing
    )  # fmt: skip
    world.flow = concrete.flow(world.flow, world.params)
    work = Work(world, Projection(world))
    work.echo = _echo(world, session) if session.executing and world.flow.file.endswith((".dot", ".gv")) else None
    session.add(work)
    if not run.fresh and not options.reopen and world.head.branch != run.branch:
        world.frozen = meant.finished(session, run)
    if session.executing:
        named = options.force or options.completed or options.budget
        if named or (not run.fresh and run.branch != world.head.branch):
            from doflow.engine.lifecycle import apply_options as wishes

            wishes.fit(world)
        _ready(session, work)
    return work


def _echo(world: World, session: Session) -> Any:
    """The file shows what the run does; nobody else works on it meanwhile."""
    from doflow.engine.lifecycle.dot_mirror import Echo
    from doflow.supervise import ownership as driver

    echo = Echo(world)
    echo.lock = driver.alone(str(session.root), world.flow.file, session.command)
    return echo


def _options(given: Mapping[str, Any], flow: str) -> Options:
    from doflow.runs.options import Options

    return Options(
        bool(given.get("next")), _names(given.get("force"), flow), _names(given.get("completed"), flow),
        bool(given.get("reopen")), bool(given.get("auto_approve")), given.get("agent") or "",
        given.get("budget") or "", bool(given.get("record")),
    )  # fmt: skip


def _ready(session: Session, work: Work) -> None:
    """What a killed process left is made good, what the person says is done is taken as done."""
    from doflow.engine.lifecycle import recovery, start as intake

    recovery.sweep(work.world)
    if not work.world.run.fresh:
        recovery.recover(work.world, work.fence)
        if work.world.flow.inputs and not work.world.frozen:
            intake.inputs(work.world)
    if work.world.options.completed:
        from doflow.engine.lifecycle import apply_options as wishes

        wishes.complete(work.world, lambda: session.begin(work))


def _names(text: Any, flow: str) -> frozenset[str]:
    return frozenset(name.strip().removeprefix(f"{flow}:") for name in str(text or "").split(",") if name.strip())


def _task(session: Session, work: Work, node: Node, first: FlowTask) -> Task:
    world = work.world
    step = world.flow.step(node.step)
    assert step is not None
    targets = (
        [os.path.join(session.root, world.path(said)) for said in step.makes]
        if step.makes and node.role == "step" and not world.frozen and step.kind != "install"
        else []
    )

    if not session.executing:  # doit refuses two makers of one file, also of flows that nobody runs together
        targets = [path for path in targets if session.made.setdefault(path, world.flow.name) == world.flow.name]

    def whole() -> dict[str, Any]:
        from doflow.engine.doit.actions import of

        act, judge = of(session, work, node, step)
        return rest(
            first,
            doc=FlowTask._init_doc(node.doc),
            _actions=[Deed(act)],
            uptodate=[(Fresh(judge), [], {})],
            ahead=ahead(work, node),
        )

    waits = (list(node.deps), {node.router} if node.router else set())
    return Outline(node.name, first.name, waits, targets, whole)


def _group(flow: str, work: Work) -> Task:
    """The flow itself: all steps that are settled, and behind a router those that it names."""
    plan = work.world.plan
    open_ = {node.step for node in plan.nodes if node.router}  # with all their parts: a route may leave them out
    wanted = frozenset(plan.pipeline)
    settled = [node.name for node in plan.nodes if node.step in wanted and node.step not in open_]
    routers = [node.router for node in plan.nodes if node.router and node.step in wanted]
    if not routers:
        routers = [plan.ends[name] for name in plan.pipeline if name in plan.routes]
    group = FlowTask(flow, None, task_dep=[name for name in settled if name not in routers[:1]],
                     calc_dep=routers[:1], has_subtask=True, doc=plan.about)  # fmt: skip

    def deps(said: Mapping[str, Any]) -> Mapping[str, Any]:
        order: list[str] = list(said["order"])
        rest = order[order.index(said["router"]) + 1 :]
        turn = next((name for name in rest if name in plan.routes), None)
        if turn is None:
            return {"task_dep": [plan.ends[name] for name in rest]}
        upto = rest[: rest.index(turn)]
        return {"task_dep": [plan.ends[name] for name in upto], "calc_dep": [plan.ends[turn]]}

    group.ahead = deps
    return group


def _hot(flow: str, about: str, stamp: Mapping[str, Any]) -> Iterator[Task]:
    """Nothing has changed since the run was complete: every task says so without looking."""
    names: Any = stamp["steps"]
    for name in names:
        yield Task(name, None, uptodate=[True], subtask_of=flow)
    yield Task(flow, None, task_dep=list(names), has_subtask=True, doc=about)


def _broken(session: Session, name: str) -> Iterator[Task]:
    words = session.project.broken[name]

    def refuse() -> object:
        from doflow.engine.doit import actions

        return actions.refuse(session, words)

    yield Task(creators.shown(name), [refuse], io=IO, verbosity=2, doc="broken: " + words.splitlines()[0])


def _stamp(session: Session, flow: str, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stamp that answers this command, if there is one: no wish beyond naming the goal or the run."""
    plain = {"goal", "run"}
    if session.always or any(value for name, value in given.items() if name not in plain):
        return None
    stamp = hot.holds(str(session.root), flow, given.get("goal"), given.get("run") or "", dict(session.environ))
    parts = [word for word in session.asked if word.startswith(f"{flow}:")]
    known: Any = stamp["steps"] if stamp is not None else ()
    return stamp if all(word in known for word in parts) else None  # a phase or a gate by name: looked up properly
