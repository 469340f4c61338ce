"""Sessions: runs in `plan/{sequence}_{hash}/`, and bug-fix sessions in `bugfix/{sequence}_{hash}/` below one. Paths only."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping

from doflow.util.errors import UsageError

PLAN, BUGFIX, FLAG = "plan", "bugfix", "SKIP_BUG_FINDING"
DELTA = "delta_from.txt"
DEBUG = "DOFLOW_DEBUG"
_NAME = r"\d{3,}_[0-9a-f]{12}"
_MAIN = re.compile(rf"{PLAN}/{_NAME}")
_CHILD = re.compile(rf"{PLAN}/({_NAME})/{BUGFIX}/({_NAME})")
_SEQUENCE = re.compile(r"^(\d{3,})_")
#: files of the pipeline that no agent may change in a session
_OWN = ("*tasks*.json", "/plan/**/prd_snapshot.md", "/plan/**/delta_prd.md", f"/plan/**/{DELTA}")
_ROOTS = ("/plan/*/*", f"/plan/*/{BUGFIX}/*/*")


def session_hash(text: str) -> str:
    """The hash in a session's name: 12 digits of the SHA-256 of its requirements."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def new_session_folder(above: str, names: Iterable[str], text: str) -> str:
    """The folder of a new session in `above`, numbered after the sessions with these names."""
    numbers = [int(found[1]) for name in names if (found := _SEQUENCE.match(name))]
    return f"{above}/{max(numbers, default=0) + 1:03d}_{session_hash(text)}"


def run_name(path: str) -> str:
    """The run name of a session folder; a bug-fix session's name includes its parent session."""
    found = _CHILD.fullmatch(path)
    return f"{found[1]}.{BUGFIX}.{found[2]}" if found else os.path.basename(path)


def parent_session(path: str) -> str:
    """The parent session's folder of a bug-fix session; '' = not a bug-fix session."""
    return path.partition(f"/{BUGFIX}/")[0] if _CHILD.fullmatch(path) else ""


def sequence_number(path: str) -> str:
    """The number of a session, as written in `delta_from.txt`."""
    found = _SEQUENCE.match(os.path.basename(path))
    return found[1] if found else ""


def check_session_path(path: str, environ: Mapping[str, str]) -> None:
    """Check the path of a new session: in bug-fix mode it must be below its parent session, never in `plan/` itself."""
    for line in debug_lines(path, environ) if environ.get(DEBUG) else ():
        sys.stderr.write(line + "\n")
    if environ.get(FLAG) == "true":
        if not _CHILD.fullmatch(path):
            raise UsageError(
                f"{FLAG}=true is only for bug-fix sessions, and {path} isn't one; expected {PLAN}/001_…/{BUGFIX}/001_…",
                f"unset {FLAG} and run the same command again",
            )
    elif BUGFIX in path.split("/"):
        raise UsageError(
            f"{path} would be a bug-fix session, but {FLAG} is not `true`",
            "they are started by the bug hunt of doit prd",
        )
    elif not _MAIN.fullmatch(path):
        raise UsageError(
            f"{path} is not a valid session folder", f"leave out --feature-dir; sessions are in {PLAN}/001_…"
        )


def debug_lines(path: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the path check used, for debugging."""
    above = parent_session(path)
    plan = f"{above}/{BUGFIX}" if above else os.path.dirname(path)
    skip = environ.get(FLAG, "")
    return f"[Guard] PLAN_DIR={plan}", f"[Guard] SESSION_DIR={path}", f"[Guard] SKIP_BUG_FINDING={skip}"


def protected_globs(path: str, prd: str) -> tuple[str, ...]:
    """Globs that no agent may change while it works for the session in this folder."""
    return (*_OWN, f"/{prd.lstrip('/') or 'PRD.md'}") if path.startswith(f"{PLAN}/") else ()


def root_file_globs(path: str) -> tuple[str, ...]:
    """Globs of the files directly in a session's folder: no agent may change them, except a step's own artifacts."""
    return _ROOTS if path.startswith(f"{PLAN}/") else ()


#: folders of other tools in which runs of the flow `implement` are
_OTHER_TOOLS = ("openspec/changes", "openspec/changes/archive", ".kiro/specs")


def run_folders(root: str | os.PathLike[str], layout: str) -> list[str]:
    """Every folder that can hold a run: both layouts, whatever the settings say, and bug-fix sessions."""
    tops = dict.fromkeys((layout, "specs", PLAN, *_OTHER_TOOLS))
    found = [f"{top}/{name}" for top in tops for name in list_folder(os.path.join(root, top))]
    inner = [f"{folder}/{BUGFIX}" for folder in found if folder.startswith(f"{PLAN}/")]
    return found + [f"{folder}/{name}" for folder in inner for name in list_folder(os.path.join(root, folder))]


def list_folder(folder: str | os.PathLike[str]) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
