"""Which run: the numbered folders of a project, choosing one, and naming a new one."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from doflow.runs import session_layout as sessionpaths
from doflow.runs.state import lockfile as locks
from doflow.util.errors import UsageError, WorldError
from doflow.util.records import dataclass, field, regex, replace
from doflow.util.text import slug

#: the file of a run's folder that holds its goal; of a session it is the requirements as they were, byte by byte
INPUT, SNAPSHOT = "input.md", "prd_snapshot.md"
_NUMBER = regex(r"^(\d{3,})-")
_NAME = regex(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
_STATE = ".doflow/runs"
GoingOn = Callable[["Run"], str]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a flow for one goal. `dir` is relative to the project; `fresh` = not on disk yet."""

    name: str
    flow: str
    dir: str
    goal: str = ""
    goal_digest: str = ""
    branch: str = ""
    issue: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    trouble: WorldError | None = None  # its lock cannot be read


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line says about the run it means."""

    goal: str | None = None
    run: str = ""
    feature_dir: str = ""
    new: bool = False
    issue: str = ""
    branch: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


def known(root: Path, layout: str = "specs") -> tuple[Run, ...]:
    """Every run that has a lock in this work tree, or that this machine has begun, by number; one in `trouble`, too."""
    found = {run.name: run for folder in sessionpaths.folders(root, layout) if (run := _seen(root, folder))}
    for name in sessionpaths.listed(root / _STATE):
        run = None if name in found else _begun(root, name)
        if run is not None:
            found[name] = run
    return tuple(found[name] for name in sorted(found))


def at(root: Path, folder: str) -> Run | None:
    """The run in this folder, if there is one."""
    path = root / folder / locks.NAME
    if not path.exists():
        return None
    head = locks.head(path)
    if not head.get("flow"):
        data = locks.raw(path) or b""
        locks.parse(data, str(path))
        raise locks.unreadable(str(path), "it does not say of which flow it is", data)
    goal = read_goal(root / folder)
    return Run(
        sessionpaths.name(folder), head["flow"], folder, goal, head.get("goal", ""), head.get("branch", ""),
        head.get("issue", ""), head.get("params", {}),
    )  # fmt: skip


def _seen(root: Path, folder: str) -> Run | None:
    """The same, also if its lock cannot be read: what its ledger knows of it, and why."""
    try:
        return at(root, folder)
    except WorldError as trouble:
        from doflow.runs.state import event_log as ledger

        name = sessionpaths.name(folder)
        told = next(ledger.read(root / _STATE / name / "events.jsonl"), {})
        goal = read_goal(root / folder)
        flow, branch = str(told.get("flow", "")), str(told.get("branch", name))
        return Run(name, flow, folder, goal, digest(goal), branch, trouble=trouble)


def choose(
    runs: Iterable[Run], flow: str, wish: Wish, branch: str, done: frozenset[str], going_on: GoingOn
) -> Run | None:
    """The run that is meant (DESIGN 2), None = a new one; an error lists the candidates, and how one is `going_on`."""
    mine = [run for run in runs if run.flow == flow]
    if wish.run or wish.feature_dir:
        found = _named(mine, flow, wish)
        if found is not None and wish.new:
            raise UsageError(
                f"--new starts another run, but {found.name} is named, which is there already",
                f"leave one of them out: doit {flow} --run={found.name}   or   doit {flow} --new --goal=…",
            )
        return found
    mine = [run for run in mine if not sessionpaths.parent(run.dir)]
    if wish.new:
        return None
    if wish.goal is not None:
        return next((run for run in reversed(mine) if run.goal_digest == digest(wish.goal)), None)
    here = [run for run in mine if run.branch == branch and branch]
    if here:
        return here[-1]
    open_ = [run for run in mine if run.name not in done]
    if len(open_) == 1:
        return open_[0]
    if not open_ and mine:
        return mine[-1]
    if not mine:
        return None
    raise several(flow, open_, going_on)


def several(whose: str, open_: list[Run], going_on: GoingOn) -> UsageError:
    lines = "".join(f"\n  {run.name}: {shorten(run.goal)}" for run in open_)
    words = f"{whose} has {len(open_)} unfinished runs; which one is meant?{lines}"
    return UsageError(words, f"name it: {going_on(open_[-1])}")


def name_new(root: Path, flow: str, wish: Wish, branches: Iterable[str], layout: str = "specs") -> Run:
    """A new run: the next free number over folders and branches, and a short name from the goal."""
    goal = wish.goal or ""
    if wish.feature_dir:
        folder = inside(root, wish.feature_dir)
        name = sessionpaths.name(folder)
    elif layout == sessionpaths.PLAN and not wish.run:
        begun = (name for name in sessionpaths.listed(root / _STATE) if _begun(root, name))
        folder = sessionpaths.folder(layout, {*branches, *sessionpaths.listed(root / layout), *begun}, goal)
        name = os.path.basename(folder)
    else:
        begun = (name for name in sessionpaths.listed(root / _STATE) if _begun(root, name))
        names = {*branches, *sessionpaths.listed(root / layout), *begun}
        number = 1 + max((int(found[1]) for name in names if (found := _NUMBER.match(name))), default=0)
        if wish.run and not _NAME.match(wish.run):
            raise UsageError(f"--run {wish.run} cannot be the name of a run", "letters, digits and - are: 007-login")
        name = wish.run or f"{number:03d}-{slug(goal) or f'{flow}-{int(time.time())}'}"
        folder = f"{layout}/{name}"
    return Run(name, flow, folder, goal, digest(goal), wish.branch or name, _issue(wish), wish.params, fresh=True)


def _same(one: str, other: str) -> bool:
    from doflow.runs import catalogue_issues as issues

    return issues.same(one, other)


def _issue(wish: Wish) -> str:
    if not wish.issue:
        return ""
    from doflow.runs import catalogue_issues as issues

    if issues.bare(wish.issue) is None:
        raise UsageError(f"--issue {wish.issue!r} names no issue", "--issue=232, or leave it out")
    return wish.issue if issues.bare(wish.issue) else ""


def digest(goal: str) -> str:
    return hashlib.sha256(goal.encode("utf-8", "surrogateescape")).hexdigest()


def read_goal(folder: Path) -> str:
    for name in (SNAPSHOT, INPUT):
        try:
            text = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
        except OSError:
            continue
        return text if name == SNAPSHOT else text.removesuffix("\n")
    return ""


def goal_text(goal: str, name: str) -> str:
    """A goal as its file holds it."""
    return goal if name == SNAPSHOT else f"{goal}\n"


def shorten(goal: str, width: int = 60) -> str:
    line = " ".join(goal.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def inside(root: Path, folder: str) -> str:
    """A folder named on the command line, relative to the project; outside of it is refused."""
    full = os.path.realpath(os.path.join(root, folder))
    if {".git", ".doflow"} & set(os.path.normpath(folder).split(os.sep)):
        raise UsageError(f"--feature-dir {folder} is inside .git or .doflow", "name a folder of the project's own")
    base = os.path.realpath(root)
    if not full.startswith(base + os.sep):
        raise UsageError(f"--feature-dir {folder} is not inside the project {base}", "name a folder below it")
    return os.path.relpath(full, base)


def renamed(run: Run, wish: Wish) -> Run:
    """An existing run with what this command line adds to it."""
    if wish.issue and run.issue and not _same(wish.issue, run.issue):
        raise UsageError(
            f"run {run.name} belongs to issue {run.issue}, not to {wish.issue}",
            f"leave --issue out, or start another run: doit {run.flow} --new --issue={wish.issue} --goal=…",
        )
    if wish.goal is not None and run.goal_digest and digest(wish.goal) != run.goal_digest:
        raise UsageError(
            f"run {run.name} is there for another goal: {shorten(run.goal)}",
            f"leave --goal out to go on with it, or start another run: doit {run.flow} --new --goal=…",
        )
    branch = wish.branch if run.fresh and wish.branch else run.branch  # as long as it has none of its own
    return replace(run, branch=branch, issue=run.issue or _issue(wish), params={**run.params, **wish.params})


def is_called(run: Run, name: str) -> bool:
    """By its whole name, its folder, or its number (`1` and `001` are the same)."""
    if name in (run.name, run.dir.rstrip("/")):
        return True
    number = sessionpaths.sequence(run.dir) or run.name.split("-")[0]
    return name.isdigit() and name.zfill(3) == number and not sessionpaths.parent(run.dir)


def _named(mine: list[Run], flow: str, wish: Wish) -> Run | None:
    folder = os.path.normpath(wish.feature_dir) if wish.feature_dir else ""
    for run in mine:
        if (folder and run.dir == folder) or (not folder and is_called(run, wish.run)):
            return run
    if wish.run and wish.goal is None:
        names = ", ".join(run.name for run in mine) or "none yet"
        raise UsageError(f"{flow} has no run called {wish.run} (there are: {names})", "doflow status lists them")
    return None


def _begun(root: Path, name: str) -> Run | None:
    """A run whose first line is in the ledger: killed before it had a lock, or on a branch not checked out."""
    from doflow.runs.state import event_log as ledger

    told = ledger.read(root / _STATE / name / "events.jsonl")
    entry = next(told, None)
    if entry is None or entry["event"] != "run_started":
        return None
    begun = False
    for later in told:
        entry = later if later["event"] == "run_started" else entry  # it could not begin before
        begun = begun or later["event"] in ("step_complete", "phase_complete")
    if (root / entry["dir"] / locks.NAME).exists():
        return _seen(root, entry["dir"])
    return Run(
        name, entry["flow"], entry["dir"], entry["goal"], digest(entry["goal"]), entry["branch"], entry["issue"],
        entry.get("params", {}), fresh=not begun,
    )  # fmt: skip
