"""Which session is meant: the last one, a new one, or one that carries a change of the requirements on from the last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from doflow.flow.model import Flow, Param
from doflow.runs import catalogue as runs, session_layout as sessionpaths
from doflow.runs.catalogue import GoingOn, Run, Wish
from doflow.runs.state import fingerprint as keys
from doflow.util.errors import Undecided, UsageError
from doflow.util.records import replace


def wished(wish: Wish, flow: Flow, environ: Mapping[str, str], root: Path) -> Wish:
    """What the command line leaves open: parameters from the environment, the goal from its file."""
    found = {param.name: environ[param.env] for param in flow.params if param.env and environ.get(param.env)}
    wish = replace(wish, params={**found, **wish.params})
    goal = _goal(flow)
    settled = wish.run or (wish.feature_dir and runs.at(root, wish.feature_dir))
    if wish.goal is not None or not goal.file or settled:
        return wish
    path = _file(flow, wish)
    runs.inside(root, path)
    try:
        return replace(wish, goal=(root / path).read_bytes().decode("utf-8", "surrogateescape"))
    except (FileNotFoundError, IsADirectoryError):
        return wish


def choose(
    known: Iterable[Run], flow: Flow, wish: Wish, branch: str, done: frozenset[str], going_on: GoingOn
) -> Run | None:
    """The session that is meant, None = a new one; when only a person can tell, an error that says the ways on."""
    mine = _main(known, flow)
    if wish.run or wish.feature_dir or not mine or wish.new or wish.goal is None:
        return runs.choose(known, flow.name, wish, branch, done, going_on)
    last = mine[-1]
    if last.goal_digest == runs.digest(wish.goal):
        return last
    if last.name in done:
        return None
    raise Undecided(
        f"{_file(flow, wish)} changed since session {last.name} began, and the session is not finished",
        f"doit {flow.name} --run={last.name}   finishes it as it was begun (the change is next)"
        f"   or   doit {flow.name} --new   begins a session with the change now",
    )


def begin(known: Iterable[Run], flow: Flow, wish: Wish, root: Path) -> Wish:
    """What a new session is given: the one that it goes on from, if the requirements are other ones now."""
    if not (wish.goal or "").strip():
        name = _file(flow, wish)
        raise UsageError(
            f"{flow.name} needs {name}, which {'is empty' if (root / name).is_file() else 'does not exist'}",
            f"write down there what is to be built, then: doit {flow.name}",
        )
    mine = [] if wish.feature_dir else _main(known, flow)
    if not mine or mine[-1].goal_digest == runs.digest(wish.goal or ""):
        return wish
    last = mine[-1]
    if not (root / last.dir / runs.SNAPSHOT).is_file():
        raise UsageError(
            f"session {last.name} lies on branch {last.branch}, which is not checked out, and this one would go on from it",
            f"git switch {last.branch}   or   git merge {last.branch}",
        )
    return replace(wish, params={**wish.params, "previous": last.dir})


def _main(known: Iterable[Run], flow: Flow) -> list[Run]:
    mine = [run for run in known if run.flow == flow.name and not sessionpaths.parent(run.dir)]
    return sorted(mine, key=lambda run: int(sessionpaths.sequence(run.dir) or 0))


def _goal(flow: Flow) -> Param:
    return next((param for param in flow.params if param.name == "goal"), Param("goal"))


def _file(flow: Flow, wish: Wish) -> str:
    given = {param.name: param.default for param in flow.params} | dict(wish.params)
    return os.path.normpath(keys.substitute(_goal(flow).file, given).lstrip("/") or "PRD.md")
