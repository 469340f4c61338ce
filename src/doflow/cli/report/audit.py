"""Do lock, files, ledger, commits and state of a run agree? Looks only; what does not is a finding in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.cli.report import next_command as advice, step_status as outlook
from doflow.flow.model import Step
from doflow.git import history, repository as look
from doflow.runs.catalogue import Run
from doflow.runs.context import World
from doflow.runs.freshness import file_origins as inherited
from doflow.runs.state import event_log as ledger, lockfile as lock
from doflow.runs.state.lockfile import Lock, Record
from doflow.util.errors import DoflowError
from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not agree: where, what, and what to type."""

    run: str
    kind: str
    message: str
    hint: str


def of_run(world: World, held: bool) -> tuple[Finding, ...]:
    """All findings of a run whose folder is in the work tree. `held`: somebody works on it now."""
    try:
        known = lock.read(world.run_dir / lock.NAME)
    except DoflowError as error:
        return (Finding(world.run.name, "lock", error.message, error.hint),)
    if known is None:
        words = f"{world.run.dir}/{lock.NAME} is gone"
        return (Finding(world.run.name, "lock", words, f"{advice.command(world)}   brings it back from the commits"),)
    torn = tuple(of_ledger(world.run, world.state_dir / "events.jsonl"))
    killed = () if held else _unfinished(world)
    if killed:  # what else does not agree follows from it, or is found when it went on
        return (*torn, *killed)
    found = [*_files(known, world), *torn]
    lost = None if world.frozen else of_branch(world)
    found += [lost] if lost else []
    if not held:
        found += _state(world)
    if world.head.branch == world.run.branch and world.head.commit:
        found += () if _moved(world) else _commits(known, world)
        found += _uncommitted(known, world)
    return tuple(found)


def elsewhere(world: World) -> bool:
    """Its lock is on its own branch, which is not checked out; files of its folder that lie here are uncommitted."""
    run, head = world.run, world.head
    if (
        (world.run_dir / lock.NAME).exists()
        or not run.branch
        or run.branch == head.branch
        or run.branch not in look.branches(head)
    ):
        return False
    return history.show(world.git, f"refs/heads/{run.branch}", f"{world.prefix}{run.dir}/{lock.NAME}") is not None


def _moved(world: World) -> bool:
    """Taken up on another branch than it began on: what was merged there, squashed perhaps, has no commits of its own."""
    told = ledger.read(world.state_dir / "events.jsonl")
    begun = [entry.get("branch") for entry in told if entry["event"] == "run_started"]
    return bool(begun) and begun[-1] != world.run.branch


def of_branch(world: World) -> Finding | None:
    """A run that is not at its end, or nowhere else, and whose branch is gone."""
    if world.run.fresh and not world.book.steps:
        return None
    from doflow.runs import lost_runs_astray as astray

    if not astray.gone(world):
        return None
    if (world.run_dir / lock.NAME).exists():
        return Finding(world.run.name, "branch", astray.words(world), f"{advice.reopening(world)}   takes it up here")
    forget = f"rm -r '{world.state_dir}'   forgets the run"
    return Finding(world.run.name, "branch", astray.words(world), f"{astray.anew(world)}   or   {forget}")


def of_ledger(run: Run, path: Path) -> Iterator[Finding]:
    """Lines that cannot be read: torn by a kill, or spoilt."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    odd = [number for number, raw in enumerate(lines, 1) if raw and not _entry(raw)]
    if odd:
        which = (
            f"line {odd[0]}" if len(odd) == 1 else f"lines {', '.join(map(str, odd[:20]))}{' …' if odd[20:] else ''}"
        )
        words = f"{path}, {which}: not an entry (torn by a killed process, or spoilt), and passed over"
        out = ";".join(f"{number}d" for number in odd)  # in one go: each of them alone would change the others' numbers
        hint = f"sed -i '{out}' '{path}'   takes that out: lock and commits know what is done"
        yield Finding(run.name, "ledger", words, hint)


def _entry(raw: bytes) -> bool:
    try:
        value = json.loads(raw)
    except ValueError:
        return False
    return isinstance(value, dict) and "event" in value


def _files(known: Lock, world: World) -> Iterator[Finding]:
    go = advice.command(world)
    for path, artifact in known.artifacts.items():
        now = world.digest(path)
        if not now:
            hint = f"git checkout -- '{path}'   brings it back   or   {go}   makes it anew"
            yield Finding(world.run.name, "artifact", f"{path} is in the lock, but not on the disk", hint)
        elif now != artifact.digest and not inherited.origin(path, world):
            words = f"{path} is not what the lock says ({artifact.author} wrote {artifact.digest[:12]}, now {now[:12]})"
            hint = f"{go}   keeps it as your edit   or   git checkout -- '{path}'   drops it"
            if world.frozen:
                hint = (
                    f"nothing has to be done, the run is finished; {advice.reopening(world)}   records it as your edit"
                )
            yield Finding(world.run.name, "artifact", words, hint)


def _unfinished(world: World) -> tuple[Finding, ...]:
    """What a process that is gone had begun, as one finding. (An end that was told, well or not, is none.)"""
    book = world.book
    told = ledger.read(world.state_dir / "events.jsonl")
    rested = max((entry["at"] for entry in told if entry["event"] in ("paused", "rate_limited")), default="")
    settling = [name for name in book.begun if name in book.returned]
    working = [name for name, entry in book.begun.items() if name not in book.returned and entry["at"] > rested]
    words = [f"killed while settling {', '.join(settling)}: its agent has returned and is paid"] if settling else []
    words += [f"killed while {', '.join(working)} was at work: begun and not finished"] if working else []
    if not words and (world.state_dir / "window").exists():
        words = ["killed while an agent could write; what it left is not put back yet"]
    return (Finding(world.run.name, "ledger", "; ".join(words), advice.command(world)),) if words else ()


def _state(world: World) -> Iterator[Finding]:
    """pipeline-state.json; that it is missing is fine, it is made anew."""
    path = world.state_dir / "pipeline-state.json"
    go = advice.command(world)
    try:
        values = json.loads(path.read_bytes())
        status, completed = values["status"], list(values["completed"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        yield Finding(world.run.name, "state", f"{path} cannot be read", f"rm '{path}'   loses nothing; then: {go}")
        return
    if status == "active" and not values.get("pauseReason") and world.book.last.get("event") != "step_complete":
        yield Finding(world.run.name, "state", "the status is active, but nobody works on it: it died", go)
    gates = {step.id for step in world.flow.steps if step.kind == "gate"}  # a yes holds as long as what it was said to
    done = [name for name in world.order() if name in world.book.steps]
    completed = [name for name in completed if name not in gates]
    if sorted(completed) != sorted(done):
        names = ", ".join(done) or "nothing"
        words = f"{path} says done: {', '.join(completed) or 'nothing'}; lock and ledger say: {names}"
        yield Finding(world.run.name, "state", words, f"rm '{path}'   loses nothing; then: {go}")


def _commits(known: Lock, world: World) -> Iterator[Finding]:
    """On the run's own branch every record has a commit with its key, and every commit the ledger tells of is there."""
    told = _trailers(world)
    made = outlook.commits(world)
    go = advice.command(world)
    for name, record in known.steps.items():
        step = world.flow.step(name.partition(":")[0])
        if step is None or record.by.get("agent") == "person" or not _commits_itself(name, step, world):
            continue
        if name not in told and not _contained(name, made, world):
            words = f"the lock says {name} is done, but no commit of this branch does"
            hint = f"{_again(name, record, world)}   says it   or   doflow reset {name}   and   {go}   does it again"
            yield Finding(world.run.name, "commit", words, hint)
        elif record.key not in told.get(name, [record.key]):
            last = told[name][0][:12]
            words = f"the key of {name} in the lock ({record.key[:12]}) is in no commit (the last one says {last})"
            yield Finding(world.run.name, "commit", words, f"doflow reset {name}   and   {go}   does it again")
    for name, commit in made.items():
        if name in known.steps and name not in told and not _contained(name, made, world):
            words = f"commit {commit[:12]} of {name} is not in the history of HEAD"
            yield Finding(world.run.name, "commit", words, f"git cherry-pick {commit[:12]}   or   doflow reset {name}")


def _contained(name: str, made: Mapping[str, str], world: World) -> bool:
    """The commit may be there under other words: the lock at HEAD is the record, its trailers say it once more."""
    return name in made and history.contains(world.git, made[name], f"{world.prefix}{world.run.dir}/{lock.NAME}")


def _again(name: str, record: Record, world: World) -> str:
    """The command that says in the history, at no cost, what the lock says."""
    step, _, phase = name.partition(":")
    lines = [f"Doflow-Run: {world.run.name}", f"Doflow-Step: {step}", f"Doflow-Phase: {phase}" if phase else ""]
    said = " ".join(f"-m '{line}'" for line in (*lines, f"Doflow-Key: {record.key}") if line)
    return f"git commit --allow-empty -m '{name} is done' {said}"


def _commits_itself(name: str, step: Step, world: World) -> bool:
    """A phase always; a step or an item where it makes files; a `foreach` as a whole never."""
    if ":" in name and not step.foreach:
        return True
    return bool(step.makes) and world.settings.commit_artifacts and (":" in name or not step.foreach)


def _trailers(world: World) -> dict[str, list[str]]:
    """For each step and phase the keys that commits of this run carry, newest first."""
    found: dict[str, list[str]] = {}
    for commit in history.history(world.git, world.run.name):
        name, key = commit.get("Doflow-Step", ""), commit.get("Doflow-Key", "")
        if name and key:
            phase = commit.get("Doflow-Phase", "")
            found.setdefault(f"{name}:{phase}" if phase else name, []).append(key)
    return found


def _uncommitted(known: Lock, world: World) -> Iterator[Finding]:
    if not world.settings.commit_artifacts or not known.steps:
        return
    path = f"{world.run.dir}/{lock.NAME}"
    data = history.show(world.git, "HEAD", f"{world.prefix}{path}")
    torn = bool(data) and lock.conflicted(data or b"")
    there = lock.parse(data, "the lock at HEAD") if data and not torn else None
    if there != known:
        what = ", which holds a conflict of git's" if torn else _difference(there, known)
        words = f"{path} is not as in the last commit{what}"
        hint = f"{advice.command(world)}   goes on and commits it   or   git checkout -- '{path}'"
        yield Finding(world.run.name, "lock", words, hint)


def _difference(there: Lock | None, here: Lock) -> str:
    if there is None:
        return ": it was never committed"
    parts: list[str] = []
    for title in ("steps", "artifacts", "approvals", "notes"):
        old: Mapping[str, Any] = getattr(there, title)
        new: Mapping[str, Any] = getattr(here, title)
        parts += [f"{title[:-1]} {name}" for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return f" ({', '.join(parts[:5])}{' …' if len(parts) > 5 else ''})" if parts else ""
