"""Which run a command means, and which steps that run has: the words of a command line held against what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from doflow.config import project
from doflow.engine.lifecycle.session import Session

if TYPE_CHECKING:
    from doflow.flow.model import Flow
    from doflow.git.head import Head
    from doflow.runs.catalogue import Run, Wish


def default(session: Session, name: str = "") -> list[str]:
    """The words that a command line without a flow leaves out: those of the run that is called so, else of the run of this
    branch, else of the only one that is open; [] = there is none."""
    from doflow.git import repository as look
    from doflow.runs import catalogue as runs, session_layout as sessionpaths
    from doflow.util.errors import DoflowError, UsageError

    try:
        head = look.find(str(session.root))
    except DoflowError:
        return []
    known = runs.known(session.root, session.project.layout)
    if name:
        found = [run for run in known if runs.is_called(run, name)]
        if not found:
            names = ", ".join(run.name for run in known) or "none yet"
            raise UsageError(f"there is no run called {name} (there are: {names})", "doflow status lists them")
        return [found[-1].flow, f"--run={found[-1].name}"]
    known = tuple(run for run in known if not sessionpaths.parent(run.dir))
    here = [run for run in known if run.branch == head.branch][-1:]
    here = here or [run for run in known if not finished(session, run)]
    if here and here[-1].trouble is not None and not here[-1].flow:
        raise here[-1].trouble
    if len(here) > 1:
        raise runs.several("this project", here, lambda run: take_up(run, head))
    return [word for run in here for word in (run.flow, f"--run={run.name}")]


def take_up(run: Run, head: Head) -> str:
    """The command that goes on with a run, whatever branch is checked out."""
    import shlex

    from doflow.git import repository as look

    words = f"doit {run.flow} --run={run.name}"
    if run.branch in ("", head.branch):
        return words
    if run.branch in look.branches(head):
        return f"git switch {shlex.quote(run.branch)} && {words}"
    return f"{words} --reopen"


def run(session: Session, flow: str, wish: Wish) -> Any:
    """The run that is meant, or a new one; looking only, a run that cannot be told is a new one, too."""
    from doflow.git import repository as look
    from doflow.runs import catalogue as runs
    from doflow.util.errors import UsageError
    from doflow.util.records import replace

    meant = session.project.flow(flow)
    layout = meant.layout or session.project.layout
    head = look.find(str(session.root))
    every = runs.known(session.root, layout)
    known = _whole(every, wish)
    if wish.feature_dir:
        wish = replace(wish, feature_dir=runs.inside(session.root, wish.feature_dir))
        named = runs.at(session.root, wish.feature_dir)
        known = (*known, *((named,) if named is not None and named.dir not in {run.dir for run in known} else ()))
    if session.executing:
        from doflow.runs import lost_runs as refound

        known = refound.runs(session.root, meant, layout, head, known)
    done = frozenset(run.name for run in known if run.flow == flow and finished(session, run))
    try:
        if meant.in_sessions:
            from doflow.engine.lifecycle import requirements_delta as delta

            found = delta.choose(known, meant, wish, head.branch, done, lambda run: take_up(run, head))
            wish = wish if found else delta.begin(known, meant, wish, session.root)
        else:
            found = runs.choose(known, flow, wish, head.branch, done, lambda run: take_up(run, head))
    except UsageError:
        if session.executing:
            raise
        found = None
    told = wish.run or wish.feature_dir or (wish.goal is not None and not meant.in_sessions)
    sure = wish.new if found is None else bool(told or found.branch == head.branch)
    _doubt(every, session, flow, sure)
    return runs.renamed(found, wish) if found is not None else _new(session, meant, wish, layout, head)


def _new(session: Session, meant: Flow, wish: Wish, layout: str, head: Head) -> Run:
    from doflow.git import repository as look
    from doflow.runs import catalogue as runs

    if session.executing:
        from doflow.git import branches as branch

        branch.foresee(head)
    taken = [work.world.run.name for work in session.works.values()]  # of this same command, not begun yet
    new = runs.name_new(session.root, meant.name, wish, [*look.branches(head), *taken], layout)
    if meant.in_sessions and session.executing:
        from doflow.runs import session_layout as sessionpaths

        sessionpaths.guard(new.dir, session.environ)
    return new


def _whole(every: tuple[Run, ...], wish: Wish) -> tuple[Run, ...]:
    """The runs whose lock can be read; the one that is named must be among them."""
    from doflow.runs import catalogue as runs

    for run in every if wish.run else ():
        if run.trouble is not None and runs.is_called(run, wish.run):
            raise run.trouble
    return tuple(run for run in every if run.trouble is None)


def _doubt(every: tuple[Run, ...], session: Session, flow: str, sure: bool) -> None:
    """A run whose lock cannot be read may be the one that is meant, unless it is sure that it is not."""
    for run in every:
        if run.trouble is not None and run.flow in ("", flow):
            if session.executing and not sure:
                raise run.trouble
            session.tell(str(run.trouble))


def present(session: Session, run: Any) -> tuple[Any, Any]:
    """The flow of a run and its plan: with the steps that this run has."""
    flow = session.project.flow(run.flow)
    if not flow.varies:
        return flow, session.project.plan(run.flow)
    from doflow.engine.lifecycle import conditions as presence
    from doflow.flow import plan

    found = presence.reduced(flow, run, session.environ)
    return found, plan.build(found, session.project.settings())


def finished(session: Session, run: Any) -> bool:
    """Is every active step of the run recorded as done? (Not: is it all still fresh.)"""
    path = session.root / project.STATE / "runs" / run.name / "pipeline-state.json"
    try:
        return bool(json.loads(path.read_bytes())["status"] == "completed")
    except (OSError, ValueError, KeyError):
        pass
    from doflow.flow import plan
    from doflow.runs.state import lockfile as lock
    from doflow.util.errors import WorldError

    try:
        held = lock.read(session.root / run.dir / lock.NAME)
    except WorldError:
        return False  # whoever opens it says why
    if held is None or run.flow not in session.project.about:
        return False
    markers = {name: record.marker for name, record in held.steps.items() if record.marker}
    flow, planned = present(session, run)
    kinds = {step.id: step.kind for step in flow.steps}
    order = plan.active(planned, markers)
    return all(name in held.steps or kinds.get(name) == "gate" for name in order)


def wish(session: Session, flow: str, given: Mapping[str, Any]) -> Wish:
    """What a command line says, and what the flow takes from elsewhere where it says nothing."""
    from doflow.runs.catalogue import Wish

    meant = session.project.flow(flow)
    names = [param.name for param in meant.params if param.name != "goal" and given.get(param.name)]
    named = {name: str(given[name]) for name in names}
    said = Wish(
        given.get("goal"), given.get("run") or "", given.get("feature_dir") or "", bool(given.get("new")),
        given.get("issue") or "", given.get("branch") or "", named,
    )  # fmt: skip
    if not (meant.varies or meant.in_sessions):
        return said
    from doflow.engine.lifecycle import requirements_delta as delta

    return delta.wished(said, meant, session.environ, session.root)
