"""A file in which git left a conflict: how a person ends it, in commands that work where they are typed."""

from __future__ import annotations

import os
import shlex

from doflow.git import repository as look, runner_quick as quick
from doflow.git.head import Head
from doflow.util.errors import WorldError

_SIGNS = (b"<<<<<<<", b"=======", b">>>>>>>")
#: what the two sides are, by what git is in the middle of
_SIDES = {
    "a rebase": ("as in the branch you rebase onto", "as in your commit that is moved"),
    "a cherry-pick": ("as on this branch", "as in the commit that is picked"),
    "a revert": (
        "as on this branch: what is done stays done",
        "as before the commit that is taken back: what that had done is done again",
    ),
}
_USUAL = ("as on this branch", "as on the other side")
_WHOLE = ("git revert", "git cherry-pick")
_BACK = 50


def marked(data: bytes) -> bool:
    """Whether git's marks of a conflict stand in a text none of whose own lines could begin so."""
    return any(sign in data for sign in _SIGNS) and any(line.startswith(_SIGNS) for line in data.splitlines())


def ways(path: str) -> str:
    """The commands that end the conflict in this file ('' = git knows of none), for a hint."""
    try:
        head = look.find(os.path.dirname(path))
        told = quick.quick(head, "ls-files", "-u", "-z", "--", os.path.realpath(path))
    except WorldError:
        return ""
    stages = {entry.split(b"\t")[0].split()[-1] for entry in told.split(b"\0") if entry}
    if not stages:
        return ""
    what, way = look.busy(head)
    ours, theirs = next((words for name, words in _SIDES.items() if what.startswith(name)), _USUAL)
    lines = [
        f"{_side('ours', b'2' in stages, path)}   {ours}",
        f"or: {_side('theirs', b'3' in stages, path)}   {theirs}",
    ]
    lines += [f"then: {way}{_skip(way)}"] if way else []
    return "\n  ".join(lines)


def before(path: str) -> str:
    """A conflict that git takes for solved: the command that brings back the last file without one ('' = none)."""
    try:
        head = look.find(os.path.dirname(path))
    except WorldError:
        return ""
    found = quick.attempt(head, "log", f"-{_BACK}", "--format=%h", "--", os.path.realpath(path))[1].decode().split()
    whole = next((commit for commit in found if _whole(head, commit, path)), "")
    return f"git checkout {whole} -- {shlex.quote(path)}   or   " if whole else ""


def _whole(head: Head, commit: str, path: str) -> bool:
    inside = os.path.relpath(os.path.realpath(path), head.top)
    code, data, _ = quick.attempt(head, "cat-file", "blob", f"{commit}:{inside}")
    return not code and not marked(data)


def _skip(way: str) -> str:
    """These two refuse to go on where nothing is left to commit."""
    verb = " ".join(way.split()[:2])
    return f", or {verb} --skip if git says that nothing is left of it" if verb in _WHOLE else ""


def _side(name: str, there: bool, path: str) -> str:
    """What takes one side of the conflict; a side that has no such file is taken by removing it."""
    said = shlex.quote(path)
    return f"git checkout --{name} -- {said} && git add -- {said}" if there else f"git rm -- {said}"
