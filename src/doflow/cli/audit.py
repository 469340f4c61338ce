"""Audit: check the lock file, files, event log, commits and state of a run against each other. Read-only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from doflow.cli import next_command, step_status
from doflow.flow.model import Step
from doflow.git import history, refs
from doflow.runs import event_log, lockfile, run_history
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Lock, StepRecord
from doflow.util import hints
from doflow.util.errors import DoflowError


class Inconsistency(NamedTuple):
    """A disagreement in a run: where, what, and the command to fix it."""

    kind: str
    message: str
    hint: str


def check_run(context: RunContext, held: bool) -> tuple[Inconsistency, ...]:
    """All findings of a run whose folder is in the working tree. `held`: a run is active."""
    try:
        known = lockfile.read_lock(context.run_dir / lockfile.NAME)
    except DoflowError as error:
        return (Inconsistency("lock", error.message, error.hint),)
    if known is None:
        hint = f"{next_command.continue_command(context)}   rebuilds it from the commits"
        return (Inconsistency("lock", f"{context.run.dir}/{lockfile.NAME} is gone", hint),)
    torn = tuple(check_event_log(context))
    killed = () if held else tuple(_unfinished(context))
    if killed:  # other findings are consequences, or are found after the next run
        return (*torn, *killed)
    found = [*_files(known, context), *torn]
    found += () if context.frozen else check_branch(context)
    found += () if held else _state(context)
    if context.head.branch == context.run.branch and context.head.commit:
        found += () if _moved(context) else _commits(known, context)
        found += _uncommitted(known, context)
    return tuple(found)


def lock_is_on_other_branch(context: RunContext) -> bool:
    """Whether its lock file is on its own branch, which is not checked out."""
    run, head = context.run, context.head
    if (context.run_dir / lockfile.NAME).exists() or not run.branch or run.branch == head.branch:
        return False
    if run.branch not in refs.branch_names(head):
        return False
    return history.file_at(context.git, f"refs/heads/{run.branch}", _lock_path(context)) is not None


def _lock_path(context: RunContext) -> str:
    """The lock file's path in the repository."""
    return f"{context.prefix}{context.run.dir}/{lockfile.NAME}"


def _moved(context: RunContext) -> bool:
    """Whether the run continued on another branch, where its commits may have been squashed."""
    entries = event_log.read_events(context.state_dir / "events.jsonl")
    branches = [entry.get("branch") for entry in entries if entry["event"] == "run_started"]
    return bool(branches) and branches[-1] != context.run.branch


def check_branch(context: RunContext) -> Iterator[Inconsistency]:
    """A finding if the branch of an unfinished run no longer exists."""
    if (context.run.fresh and not context.record.steps) or not run_history.branch_is_gone(context):
        return
    hint = f"{next_command.reopen_command(context)}   continues it here"
    if not (context.run_dir / lockfile.NAME).exists():
        back = hints.text("", run_history.recovery_commands(context), context.target)
        hint = f"{back}   or   rm -r '{context.state_dir}'   forgets the run"
    yield Inconsistency("branch", run_history.branch_gone_message(context), hint)


def check_event_log(context: RunContext) -> Iterator[Inconsistency]:
    """Lines of the event log that cannot be read."""
    path = context.state_dir / "events.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    odd = [number for number, raw in enumerate(lines, 1) if raw and not _entry(raw)]
    if odd:
        which = f"line{'s' * (len(odd) > 1)} {', '.join(map(str, odd[:20]))}{' …' if odd[20:] else ''}"
        words = f"{path}, {which}: not an event (cut off by a killed process, or corrupted); ignored"
        out = ";".join(f"{number}d" for number in odd)  # in one command, so that line numbers stay valid
        hint = f"sed -i '{out}' '{path}'   removes it: lock file and commits record what is done"
        yield Inconsistency("ledger", words, hint)


def _entry(raw: bytes) -> bool:
    try:
        value = json.loads(raw)
    except ValueError:
        return False
    return isinstance(value, dict) and "event" in value


def _files(known: Lock, context: RunContext) -> Iterator[Inconsistency]:
    go = next_command.continue_command(context)
    for path, artifact in known.artifacts.items():
        now = context.files.digest(path)
        if not now:
            hint = f"git checkout -- '{path}'   restores it   or   {go}   makes it again"
            yield Inconsistency("artifact", f"{path} is in the lock, but not on the disk", hint)
        elif now != artifact.digest and not run_history.file_origin(path, context):
            words = f"{path} is not what the lock says ({artifact.author} wrote {artifact.digest[:12]}, now {now[:12]})"
            hint = f"{go}   keeps it as your edit   or   git checkout -- '{path}'   drops it"
            if context.frozen:
                hint = f"nothing has to be done, the run is finished; {next_command.reopen_command(context)}   records it as your edit"
            yield Inconsistency("artifact", words, hint)


def _unfinished(context: RunContext) -> Iterator[Inconsistency]:
    """One finding for everything that a killed process left unfinished."""
    record = context.record
    entries = event_log.read_events(context.state_dir / "events.jsonl")
    rested = max((entry["at"] for entry in entries if entry["event"] in ("paused", "rate_limited")), default="")
    settling = [name for name in record.started if name in record.returned]
    working = [name for name, entry in record.started.items() if name not in record.returned and entry["at"] > rested]
    words = [f"killed while checking {', '.join(settling)}: its agent has returned and is paid"] if settling else []
    words += [f"killed while {', '.join(working)} was running: started and not finished"] if working else []
    if not words and (context.state_dir / "window").exists():
        words = ["killed while an agent could write; its changes are not reverted yet"]
    if words:
        yield Inconsistency("ledger", "; ".join(words), next_command.continue_command(context))


def _state(context: RunContext) -> Iterator[Inconsistency]:
    """Check pipeline-state.json; a missing file is fine, it is written again."""
    path = context.state_dir / "pipeline-state.json"
    go = next_command.continue_command(context)
    again = f"rm '{path}'   loses nothing; then: {go}"
    try:
        values = json.loads(path.read_bytes())
        status, completed = values["status"], list(values["completed"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        yield Inconsistency("state", f"{path} cannot be read", again)
        return
    stopped = values.get("pauseReason") or context.record.last_event.get("event") == "step_complete"
    if status == "active" and not stopped:
        yield Inconsistency("state", "the status is active, but no process is running it: it died", go)
    gates = {step.id for step in context.flow.steps if step.kind == "gate"}  # gates have no record of their own
    done = [name for name in context.order.active() if name in context.record.steps]
    completed = [name for name in completed if name not in gates]
    if sorted(completed) != sorted(done):
        names = ", ".join(done) or "nothing"
        words = f"{path} says done: {', '.join(completed) or 'nothing'}; lock file and event log say: {names}"
        yield Inconsistency("state", words, again)


def _commits(known: Lock, context: RunContext) -> Iterator[Inconsistency]:
    """On the run's own branch every record has a commit with its key, and every commit in the event log exists."""
    trailers = _trailers(context)
    made = step_status.step_commits(context)
    go = next_command.continue_command(context)
    for name, record in known.steps.items():
        step = context.flow.step(name.partition(":")[0])
        if step is None or record.by.get("agent") == "person" or not _commits_itself(name, step, context):
            continue
        if name not in trailers and not _contained(name, made, context):
            words = f"the lock says {name} is done, but no commit of this branch does"
            again = f"{_empty_commit(name, record, context)}   records it   or   doflow reset {name}"
            yield Inconsistency("commit", words, f"{again}   and   {go}   runs it again")
        elif record.key not in trailers.get(name, [record.key]):
            last = trailers[name][0][:12]
            words = f"the key of {name} in the lock ({record.key[:12]}) is in no commit (the last one says {last})"
            yield Inconsistency("commit", words, f"doflow reset {name}   and   {go}   runs it again")
    for name, commit in made.items():
        if name in known.steps and name not in trailers and not _contained(name, made, context):
            hint = f"git cherry-pick {commit[:12]}   or   doflow reset {name}"
            yield Inconsistency("commit", f"commit {commit[:12]} of {name} is not in the history of HEAD", hint)


def _contained(name: str, made: Mapping[str, str], context: RunContext) -> bool:
    """Whether HEAD contains the step's commit, for example with a rewritten message."""
    return name in made and history.is_contained(context.git, made[name], _lock_path(context))


def _empty_commit(name: str, record: StepRecord, context: RunContext) -> str:
    """The command that records the step in the history with an empty commit."""
    step, _, phase = name.partition(":")
    trailers = {"Run": context.run.name, "Step": step, "Phase": phase, "Key": record.key}
    messages = " ".join(f"-m 'Doflow-{key}: {value}'" for key, value in trailers.items() if value)
    return f"git commit --allow-empty -m '{name} is done' {messages}"


def _commits_itself(name: str, step: Step, context: RunContext) -> bool:
    """Whether it has its own commit: phases always, steps and items with artifacts, a whole `foreach` never."""
    if ":" in name and not step.foreach:
        return True
    return bool(step.makes) and context.settings.commit_artifacts and (":" in name or not step.foreach)


def _trailers(context: RunContext) -> dict[str, list[str]]:
    """The keys in the run's commits for each step and phase, newest first."""
    found: dict[str, list[str]] = {}
    for commit in history.run_commits(context.git, context.run.name):
        name, key = commit.get("Doflow-Step", ""), commit.get("Doflow-Key", "")
        if name and key:
            phase = commit.get("Doflow-Phase", "")
            found.setdefault(f"{name}:{phase}" if phase else name, []).append(key)
    return found


def _uncommitted(known: Lock, context: RunContext) -> Iterator[Inconsistency]:
    if not context.settings.commit_artifacts or not known.steps:
        return
    path = f"{context.run.dir}/{lockfile.NAME}"
    data = history.file_at(context.git, "HEAD", _lock_path(context))
    torn = bool(data) and lockfile.has_conflict(data or b"")
    there = lockfile.parse_lock(data, "the lock at HEAD") if data and not torn else None
    if there != known:
        what = ", which has a git conflict" if torn else _difference(there, known)
        words = f"{path} differs from the last commit{what}"
        hint = f"{next_command.continue_command(context)}   continues and commits it   or    git checkout -- '{path}'"
        yield Inconsistency("lock", words, hint)


def _difference(there: Lock | None, here: Lock) -> str:
    if there is None:
        return ": it was never committed"
    parts: list[str] = []
    for title in ("steps", "artifacts", "approvals", "notes"):
        old: Mapping[str, Any] = getattr(there, title)
        new: Mapping[str, Any] = getattr(here, title)
        parts += [f"{title[:-1]} {name}" for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return f" ({', '.join(parts[:5])}{' …' if len(parts) > 5 else ''})" if parts else ""
