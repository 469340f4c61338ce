"""Sessions: runs in `plan/{sequence}_{hash}/`, and bug-fix sessions in `bugfix/{sequence}_{hash}/` below one. Paths only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from doflow.util.errors import UsageError
from doflow.util.records import regex

PLAN, BUGFIX, FLAG = "plan", "bugfix", "SKIP_BUG_FINDING"
DELTA = "delta_from.txt"
DEBUG = "DOFLOW_DEBUG"
_NAME = r"\d{3,}_[0-9a-f]{12}"
_MAIN = regex(rf"{PLAN}/{_NAME}")
_CHILD = regex(rf"{PLAN}/({_NAME})/{BUGFIX}/({_NAME})")
_SEQUENCE = regex(r"^(\d{3,})_")
#: what no agent touches in a session: the pipeline's own files, wherever they are
_OWN = ("*tasks*.json", "/plan/**/prd_snapshot.md", "/plan/**/delta_prd.md", f"/plan/**/{DELTA}")
_ROOTS = ("/plan/*/*", f"/plan/*/{BUGFIX}/*/*")


def hashed(text: str) -> str:
    """The hash in a session's name: 12 digits of the SHA-256 of what it was begun for."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def folder(above: str, names: Iterable[str], text: str) -> str:
    """The folder of a new session in `above`, behind those with these names."""
    numbers = [int(found[1]) for name in names if (found := _SEQUENCE.match(name))]
    return f"{above}/{max(numbers, default=0) + 1:03d}_{hashed(text)}"


def name(path: str) -> str:
    """What the session in a folder is called: a bug-fix session after the one that it belongs to, too."""
    found = _CHILD.fullmatch(path)
    return f"{found[1]}.{BUGFIX}.{found[2]}" if found else os.path.basename(path)


def parent(path: str) -> str:
    """The folder of the session that a bug-fix session belongs to; '' = it is none."""
    return path.partition(f"/{BUGFIX}/")[0] if _CHILD.fullmatch(path) else ""


def sequence(path: str) -> str:
    """The number of a session, as `delta_from.txt` says it."""
    found = _SEQUENCE.match(os.path.basename(path))
    return found[1] if found else ""


def guard(path: str, environ: Mapping[str, str]) -> None:
    """A new session stands where it belongs: in bug-fix mode below the session that it mends, never in `plan/` itself."""
    for line in told(path, environ) if environ.get(DEBUG) else ():
        sys.stderr.write(line + "\n")
    if environ.get(FLAG) == "true":
        if not _CHILD.fullmatch(path):
            raise UsageError(
                f"{FLAG}=true is a bug-fix session's, and {path} is not one: its path would be "
                f"{PLAN}/001_…/{BUGFIX}/001_…",
                f"unset {FLAG}, then the same command again",
            )
    elif BUGFIX in path.split("/"):
        raise UsageError(
            f"{path} would be a bug-fix session, but {FLAG} is not `true`", "the bug hunt of doit prd starts them"
        )
    elif not _MAIN.fullmatch(path):
        raise UsageError(f"{path} is no place for a session", f"{PLAN}/001_…: leave --feature-dir out")


def told(path: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the guard saw, for whoever looks for a fault."""
    above = parent(path)
    plan = f"{above}/{BUGFIX}" if above else os.path.dirname(path)
    skip = environ.get(FLAG, "")
    return f"[Guard] PLAN_DIR={plan}", f"[Guard] SESSION_DIR={path}", f"[Guard] SKIP_BUG_FINDING={skip}"


def protected(path: str, prd: str) -> tuple[str, ...]:
    """Globs that no agent may change while it works for the session in this folder."""
    return (*_OWN, f"/{prd.lstrip('/') or 'PRD.md'}") if path.startswith(f"{PLAN}/") else ()


def roots(path: str) -> tuple[str, ...]:
    """Globs of the files that stand directly in a session's folder: a step's own artifacts excepted, no agent's."""
    return _ROOTS if path.startswith(f"{PLAN}/") else ()


def folders(root: str | os.PathLike[str], layout: str) -> list[str]:
    """Where runs can be: in either layout, whatever the settings say now; bug-fix sessions below their own."""
    tops = dict.fromkeys((layout, "specs", PLAN))
    found = [f"{top}/{name}" for top in tops for name in listed(os.path.join(root, top))]
    inner = [f"{folder}/{BUGFIX}" for folder in found if folder.startswith(f"{PLAN}/")]
    return found + [f"{folder}/{name}" for folder in inner for name in listed(os.path.join(root, folder))]


def listed(folder: str | os.PathLike[str]) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
