"""Files with merge conflicts: the commands that resolve them."""

from __future__ import annotations

import os
import shlex

from doflow.git import head_reader
from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

_SIGNS = (b"<<<<<<<", b"=======", b">>>>>>>")
#: what the two sides are, by the operation in progress
_SIDES = {
    "a rebase": ("the version of the branch you rebase onto", "the version of your commit"),
    "a cherry-pick": ("the version of this branch", "the version of the picked commit"),
    "a revert": (
        "the version of this branch: keep finished steps",
        "the version before the reverted commit: its steps run again",
    ),
}
_USUAL = ("the version of this branch", "the version of the other branch")
_WHOLE = ("git revert", "git cherry-pick")
_BACK = 50


def marked(data: bytes) -> bool:
    """Whether a text has git's conflict markers; for texts that have no such lines otherwise."""
    return any(sign in data for sign in _SIGNS) and any(line.startswith(_SIGNS) for line in data.splitlines())


def resolution_hint(path: str) -> str:
    """The commands that resolve the conflict in this file ('' = no conflict), for a hint."""
    try:
        head = head_reader.find_head(os.path.dirname(path))
        listed = Repository(head).run("ls-files", "-u", "-z", "--", os.path.realpath(path))
    except WorldError:
        return ""
    stages = {entry.split(b"\t")[0].split()[-1] for entry in listed.split(b"\0") if entry}
    if not stages:
        return ""
    what, way = head_reader.operation_in_progress(head)
    ours, theirs = next((words for name, words in _SIDES.items() if what.startswith(name)), _USUAL)
    lines = [
        f"{_side('ours', b'2' in stages, path)}   {ours}",
        f"or: {_side('theirs', b'3' in stages, path)}   {theirs}",
    ]
    lines += [f"then: {way}{_skip(way)}"] if way else []
    return "\n  ".join(lines)


def last_clean_version(path: str) -> str:
    """A committed conflict: the command that restores the last version without one ('' = none)."""
    try:
        head = head_reader.find_head(os.path.dirname(path))
    except WorldError:
        return ""
    found = Repository(head).call("log", f"-{_BACK}", "--format=%h", "--", os.path.realpath(path))[1].decode().split()
    whole = next((commit for commit in found if _whole(head, commit, path)), "")
    return f"git checkout {whole} -- {shlex.quote(path)}   or   " if whole else ""


def _whole(head: Head, commit: str, path: str) -> bool:
    inside = os.path.relpath(os.path.realpath(path), head.top)
    code, data, _ = Repository(head).call("cat-file", "blob", f"{commit}:{inside}")
    return not code and not marked(data)


def _skip(way: str) -> str:
    """These two refuse to continue if nothing is left to commit."""
    verb = " ".join(way.split()[:2])
    return f", or {verb} --skip if git reports an empty commit" if verb in _WHOLE else ""


def _side(name: str, there: bool, path: str) -> str:
    """The command that takes one side of the conflict; it removes the file if that side has none."""
    quoted = shlex.quote(path)
    return f"git checkout --{name} -- {quoted} && git add -- {quoted}" if there else f"git rm -- {quoted}"
