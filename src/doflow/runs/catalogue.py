"""Catalogue of runs: list, choose and name the runs of a project, and find leftovers of killed processes."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from doflow.runs import event_log, lockfile, session_layout
from doflow.util import state_folder
from doflow.util.errors import UsageError, WorldError
from doflow.util.text import slug

#: the file with a run's goal; for a session, an exact copy of the requirements
INPUT, SNAPSHOT = "input.md", "prd_snapshot.md"
_NUMBER = re.compile(r"^(\d{3,7})-")  # eight digits are a date, which spec-kit can put there
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
ResumeCommand = Callable[["Run"], str]


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
    moved_from: str = ""  # its folder when its lock was written, if it was moved since


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line says about the run."""

    goal: str | None = None
    run: str = ""
    feature_dir: str = ""
    new: bool = False
    issue: str = ""
    branch: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


def list_runs(root: Path, layout: str = "specs") -> tuple[Run, ...]:
    """Every run with a lock file in this working tree or with an event log on this machine, by number."""
    seen = [run for folder in session_layout.run_folders(root, layout) if (run := _seen(root, folder))]
    found: dict[str, Run] = {}
    for run in sorted(seen, key=lambda run: bool(run.moved_from)):  # a copy of a run's folder is another run
        name = session_layout.run_name(run.dir) if run.name in found else run.name
        found[name] = replace(run, name=name)
    for name in session_layout.list_folder(root / state_folder.RUNS):
        if name not in found and (run := _run_from_events(root, name)):
            found[name] = run
    return tuple(found[name] for name in sorted(found))


def run_in_folder(root: Path, folder: str) -> Run | None:
    """The run in this folder, if there is one."""
    path = root / folder / lockfile.NAME
    if not path.exists():
        return None
    head = lockfile.read_header(path)
    if not head.get("flow"):
        data = lockfile.read_lock_bytes(path) or b""
        lockfile.parse_lock(data, str(path))
        raise lockfile.unreadable_lock(str(path), "it does not name its flow", data)
    name, old, params = lockfile.locate_run(head, folder, session_layout.run_name(folder))
    goal, branch, issue = (head.get(field, "") for field in ("goal", "branch", "issue"))
    return Run(name, head["flow"], folder, read_goal(root / folder), goal, branch, issue, params, moved_from=old)


def _seen(root: Path, folder: str) -> Run | None:
    """The same, but for an unreadable lock file return what the event log knows, with the error as `trouble`."""
    try:
        return run_in_folder(root, folder)
    except WorldError as trouble:
        name = session_layout.run_name(folder)
        entry = next(event_log.read_events(root / state_folder.RUNS / name / "events.jsonl"), {})
        goal, branch = read_goal(root / folder), str(entry.get("branch", name))
        return Run(name, str(entry.get("flow", "")), folder, goal, digest(goal), branch, trouble=trouble)


def choose_run(
    runs: Iterable[Run],
    flow: str,
    request: RunRequest,
    branch: str,
    done: frozenset[str],
    resume_command: ResumeCommand,
) -> Run | None:
    """The run to work on (DESIGN 2); None = a new one. If it is ambiguous, the error lists the candidates."""
    known = [run for run in runs if run.flow == flow]
    if request.run or request.feature_dir:
        found = _named(known, flow, request)
        if found is not None and request.new:
            raise UsageError(
                f"--new starts another run, but {found.name} already exists",
                f"leave out one of the two: doit {flow} --run={found.name}   or   doit {flow} --new --goal=…",
            )
        return found
    if request.new:
        return None
    known = [run for run in known if not session_layout.parent_session(run.dir)]
    if request.goal is not None:
        return next((run for run in reversed(known) if run.goal_digest == digest(request.goal)), None)
    if here := [run for run in known if run.branch == branch and branch]:
        return here[-1]
    unfinished = [run for run in known if run.name not in done]
    if len(unfinished) > 1:
        raise ambiguous_run(flow, unfinished, resume_command)
    return next(reversed(unfinished or known), None)


def ambiguous_run(flow: str, unfinished: list[Run], resume_command: ResumeCommand) -> UsageError:
    lines = "".join(f"\n  {run.name}: {shorten(run.goal)}" for run in unfinished)
    message = f"{flow} has {len(unfinished)} unfinished runs; which one do you mean?{lines}"
    return UsageError(message, f"name it: {resume_command(unfinished[-1])}")


def new_run(root: Path, flow: str, request: RunRequest, branches: Iterable[str], layout: str = "specs") -> Run:
    """A new run, named with the next free number over folders and branches and a slug of the goal."""
    goal = request.goal or ""
    if request.run and not request.feature_dir and not _NAME.match(request.run):
        hint = "use letters, digits and -, for example 007-login"
        raise UsageError(f"--run {request.run} is not a valid run name", hint)
    if request.feature_dir:
        folder = project_folder(root, request.feature_dir)
        name = session_layout.run_name(folder)
    elif layout == session_layout.PLAN and not request.run:
        folder = session_layout.new_session_folder(layout, _taken_names(root, layout, branches), goal)
        name = os.path.basename(folder)
    else:
        numbers = [int(found[1]) for name in _taken_names(root, layout, branches) if (found := _NUMBER.match(name))]
        number = max(numbers, default=0) + 1
        name = request.run or f"{number:03d}-{slug(goal) or f'{flow}-{int(time.time())}'}"
        folder = f"{layout}/{name}"
    return Run(
        name, flow, folder, goal, digest(goal), request.branch or name, _issue(request), request.params, fresh=True
    )


def _taken_names(root: Path, layout: str, branches: Iterable[str]) -> set[str]:
    started = (name for name in session_layout.list_folder(root / state_folder.RUNS) if _run_from_events(root, name))
    return {*branches, *session_layout.list_folder(root / layout), *started}


def _issue(request: RunRequest) -> str:
    issue = bare_issue(request.issue)
    if request.issue and issue is None:
        raise UsageError(f"--issue {request.issue!r} is not an issue", "use --issue=232, or leave it out")
    return request.issue if issue else ""


def digest(goal: str) -> str:
    return hashlib.sha256(goal.encode("utf-8", "surrogateescape")).hexdigest()


def read_goal(folder: Path) -> str:
    for name in (SNAPSHOT, INPUT):
        with suppress(OSError):
            text = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
            return text if name == SNAPSHOT else text.removesuffix("\n")
    return ""


def shorten(goal: str, width: int = 60) -> str:
    line = " ".join(goal.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def project_folder(root: Path, folder: str) -> str:
    """A folder from the command line, relative to the project; folders outside it are an error."""
    full = os.path.realpath(os.path.join(root, folder))
    if {".git", state_folder.NAME} & set(os.path.normpath(folder).split(os.sep)):
        raise UsageError(f"--feature-dir {folder} is inside .git or .doflow", "choose another folder of the project")
    base = os.path.realpath(root)
    if not full.startswith(base + os.sep):
        raise UsageError(f"--feature-dir {folder} is not inside the project {base}", "name a folder below it")
    return os.path.relpath(full, base)


def apply_request(run: Run, request: RunRequest) -> Run:
    """An existing run with the values of this command line."""
    if request.issue and run.issue and not same_issue(request.issue, run.issue):
        raise UsageError(
            f"run {run.name} belongs to issue {run.issue}, not to {request.issue}",
            f"leave --issue out, or start another run: doit {run.flow} --new --issue={request.issue} --goal=…",
        )
    if request.goal is not None and run.goal_digest and digest(request.goal) != run.goal_digest:
        raise UsageError(
            f"run {run.name} was started with a different goal: {shorten(run.goal)}",
            f"leave out --goal to continue it, or start another run: doit {run.flow} --new --goal=…",
        )
    branch = request.branch if run.fresh and request.branch else run.branch  # only while it has no branch yet
    return replace(run, branch=branch, issue=run.issue or _issue(request), params={**run.params, **request.params})


def is_named(run: Run, name: str) -> bool:
    """Whether `name` is the run's name, folder or number (`1` and `001` are the same)."""
    if name in (run.name, run.dir.rstrip("/")):
        return True
    number = session_layout.sequence_number(run.dir) or run.name.split("-")[0]
    return name.isdigit() and name.zfill(3) == number and not session_layout.parent_session(run.dir)


def _named(known: list[Run], flow: str, request: RunRequest) -> Run | None:
    folder = os.path.normpath(request.feature_dir) if request.feature_dir else ""
    for run in known:
        if (folder and run.dir == folder) or (not folder and is_named(run, request.run)):
            return run
    if request.run and request.goal is None:
        names = ", ".join(run.name for run in known) or "none yet"
        raise UsageError(f"{flow} has no run called {request.run} (there are: {names})", "doflow status lists them")
    return None


def _run_from_events(root: Path, name: str) -> Run | None:
    """A run known only from its event log: killed before its lock was written, or on another branch."""
    entries = event_log.read_events(root / state_folder.RUNS / name / "events.jsonl")
    entry = next(entries, None)
    if entry is None or entry["event"] != "run_started":
        return None
    started = False
    for later in entries:
        entry = later if later["event"] == "run_started" else entry  # an earlier start failed
        started = started or later["event"] in ("step_complete", "phase_complete")
    if (root / entry["dir"] / lockfile.NAME).exists():
        return _seen(root, entry["dir"])
    return Run(
        name, entry["flow"], entry["dir"], entry["goal"], digest(entry["goal"]), entry["branch"], entry["issue"],
        entry.get("params", {}), fresh=not started,
    )  # fmt: skip


def bare_issue(text: str) -> str | None:
    """The normalized issue; '' = no issue (`none`), None = not an issue."""
    words = text.strip().lstrip("#").strip().casefold()
    return {"": None, "none": ""}.get(words, words)


def same_issue(one: str, other: str) -> bool:
    """Whether two texts name the same issue; an empty text means no issue."""
    return (bare_issue(one) or "") == (bare_issue(other) or "")


def format_issue(text: str) -> str:
    """The issue as written to files: `#232`, other text unchanged, or `none`."""
    words = bare_issue(text) or ""
    return (f"#{words}" if words.isdecimal() else text.strip()) if words else "none"


_TEMPORARY = r"\.doflow-[0-9a-f]{16}\.tmp"


def temporary_files(root: Path, layout: str) -> tuple[Path, ...]:
    """Temporary files left by killed processes; only valid while no run is active."""
    tops = dict.fromkeys((state_folder.NAME, layout, "specs", "plan"))
    found = [path for top in tops for path in _files(root / top, _TEMPORARY)]
    found += _files(root, _TEMPORARY, deep=False)
    found += _files(root / state_folder.STAMPS, r".+\.\d+")
    found += _files(root / state_folder.NAME, r"flows\.cache\.\d+", deep=False)
    return tuple(sorted(found))


def unreadable_databases(root: Path) -> tuple[Path, ...]:
    """Unreadable doit databases that were renamed; the lock file and event log record what is done."""
    return tuple(sorted(_files(root / state_folder.NAME, r"state\.db(-wal|-shm)?\.bad", deep=False)))


def orphaned_state_folders(root: Path, runs: Container[str]) -> tuple[Path, ...]:
    """State folders that belong to none of these runs and have no event log entries."""
    folder = root / state_folder.RUNS
    lost = [folder / name for name in sorted(session_layout.list_folder(folder)) if name not in runs]
    return tuple(path for path in lost if path.is_dir() and not any(event_log.read_events(path / "events.jsonl")))


def disk_size(path: Path) -> int:
    """Size in bytes of a file, or of all files below a folder; links are not followed."""
    files = _files(path) if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)


def _files(folder: Path, pattern: str = "(?s).*", deep: bool = True) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        yield from (Path(place, name) for name in names if re.fullmatch(pattern, name))
        if not deep:
            below.clear()
