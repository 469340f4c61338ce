"""Which files of git and of doflow itself are held while agents work, and what a change of each means."""

from __future__ import annotations

import os
from collections.abc import Callable

from doflow.git import refs
from doflow.git.head import Head
from doflow.guard.gitstate.held_files import Area, Held
from doflow.guard.snapshot import walk as snapshot
from doflow.guard.snapshot.entries import Change
from doflow.runs.context import STATE, World
from doflow.runs.state import event_log as ledger

_PASSED = ("doflow-", "worktrees", "lfs", "annex", "fsmonitor--daemon", "gc.pid", "gc.log")
_STEERS = ("config", "hooks/", "info/", "commondir", "gitdir", "alternates", "http-alternates")
_QUIET = (
    *("index", "logs/", "packed-refs", "HEAD", "refs/", "reftable/", "info/", "ORIG_HEAD", "FETCH_HEAD"),
    "COMMIT_EDITMSG",
)
_REFS = ("refs", "packed-refs", "reftable", "logs/refs")
_CACHES = ("flows", "stamps/")


def of(head: Head, world: World, apart: bool, own: str) -> tuple[Area, ...]:
    """`apart`: of the refs only the run's `own` is held as a file, for other work trees use the rest too."""
    counts = _of_shared(own) if apart else _of_git
    found = [Area(folder, ".git", counts) for folder in dict.fromkeys((head.git_dir, head.common_dir))]
    found.append(Area(os.path.join(head.common_dir, "objects", "info"), ".git/objects/info", _of_objects))
    return (*found, Area(str(world.root / STATE), STATE, _of_state(str(world.root / STATE))))


def _of_git(path: str) -> bool:
    return not path.startswith(_PASSED) and path.rpartition("/")[2] != "objects"


def _of_shared(ref: str) -> Callable[[str], bool]:
    own = (f"{ref}/", f"logs/{ref}/")

    def counts(path: str) -> bool:
        if not path.startswith(_REFS):
            return _of_git(path)
        return f"{path}/".startswith(own) or any(name.startswith(f"{path}/") for name in own)

    return counts


def records(run: str) -> tuple[str, ...]:
    """Where refs begin that doflow keeps for this run."""
    return tuple(f"refs/doflow/{kind}/{run}/" for kind in ("held", "wip", "undone"))


def shared(head: Head) -> bool:
    """Whether other work trees use the same refs, now or at any time."""
    return head.git_dir != head.common_dir or bool(_others(head))


def elsewhere(head: Head) -> frozenset[str]:
    """The branches that other work trees have checked out: whoever works there moves them."""
    homes = {head.common_dir, *_others(head)} - {head.git_dir}
    texts = (refs.small(os.path.join(home, "HEAD")).strip() for home in homes)
    return frozenset(text.removeprefix("ref:").strip() for text in texts if text.startswith("ref:"))


def _others(head: Head) -> list[str]:
    folder = os.path.join(head.common_dir, "worktrees")
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def quiet(change: Change) -> bool:
    """Not worth a word by itself: what it means is told otherwise."""
    return _starts(change.path, _QUIET)


def _of_objects(path: str) -> bool:
    return path in ("alternates", "http-alternates")


def _of_state(folder: str) -> Callable[[str], bool]:
    def counts(path: str) -> bool:
        parts = path.split("/")
        if parts[0] != "runs":
            return path in (".gitignore", "flows.cache") or parts[0] == "stamps"
        if len(parts) < 3:
            return True
        return len(parts) == 3 and parts[2] in ("events.jsonl", "hooks.json") and not ledger.writes(f"{folder}/{path}")

    return counts


def changes(held: Held) -> tuple[Change, ...]:
    return snapshot.compare(held.base, held.now())


def steers(held: Held, change: Change) -> bool:
    return held.area.shown != ".git" or (_starts(change.path, _STEERS) and change.path != "info/refs")


def own_ledger(change: Change) -> bool:
    """Not held while this or another process of ours wrote to it."""
    return change.kind == "added" and change.path.endswith("/events.jsonl")


def cache(held: Held, change: Change) -> bool:
    return held.area.shown == STATE and _starts(change.path, _CACHES)


def _starts(path: str, names: tuple[str, ...]) -> bool:
    """A submodule's git folder is one like ours, below `modules/NAME/`."""
    if path.startswith("modules/"):
        return any(f"/{name}" in path for name in names)
    return any(path.startswith(name) if name.endswith("/") else path.split(".")[0] == name for name in names)


def shown(held: Held, change: Change) -> str:
    return f"{held.area.shown}/{change.path}"
