"""Files outside of a run's folder that it has not left as they are: another run's, the last commit's, or a person's edit?"""

from __future__ import annotations

from pathlib import Path

from doflow.git import repository as look
from doflow.runs import session_layout as sessionpaths
from doflow.runs.context import World
from doflow.runs.state import lockfile as lock
from doflow.runs.state.lockfile import Lock
from doflow.util.errors import DoflowError

#: as HEAD has it, and no run says that it made it
COMMITTED = "commit"


def origin(path: str, world: World) -> str:
    """Where the bytes come from: `run NAME`, COMMITTED, or '' = a person's edit that nobody has committed.

    What this run has made itself is an edit until a later run made it anew: a person who brings back an older text, or
    commits one of theirs, means it.
    """
    if path.startswith(f"{world.run.dir}/"):
        return ""
    held = world.book.artifacts.get(path)
    safe = _committed(path, world)
    if safe or not world.settings.commit_artifacts:
        record = world.book.steps.get(held.step) if held else None
        name = _maker(path, world, record.at if record else "")
        if name:
            return f"run {name}"
    return COMMITTED if safe and held is None else ""


def _committed(path: str, world: World) -> bool:
    from doflow.git import tree_writer as trees

    commit = look.find(str(world.root)).commit
    with world.guard:
        return bool(commit) and trees.holds(world.git, commit, f"{world.prefix}{path}")


def _maker(path: str, world: World, since: str) -> str:
    """The last of the other runs, after `since`, whose lock says that no person wrote just these bytes there."""
    now, found = world.digest(path), ("", "")
    for folder in sessionpaths.folders(world.root, world.settings.layout):
        held = _lock(world.root / folder / lock.NAME, now) if folder != world.run.dir else None
        made = held.artifacts.get(path) if held else None
        if held is None or made is None or made.digest != now or made.author == "person":
            continue
        record = held.steps.get(made.step)
        if not since or (record is not None and record.at > since):
            found = max(found, (record.at if record else "", held.run))
    return found[1]


_read: dict[Path, tuple[bytes, Lock]] = {}


def _lock(path: Path, digest: str) -> Lock | None:
    """The lock of another run if it knows this digest; one that cannot be read knows nothing."""
    try:
        data = path.read_bytes()
        if digest.encode() not in data:
            return None
        if path not in _read or _read[path][0] != data:
            _read[path] = (data, lock.parse(data, str(path)))
    except (OSError, DoflowError):
        return None
    return _read[path][1]
