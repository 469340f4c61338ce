"""Holding on to what refs point at: whatever an agent deletes, git keeps the objects."""

from __future__ import annotations

import hashlib
import os

from doflow.git import private_index as private, refs, refs_every as every
from doflow.git.runner import Git

_WHO = "doflow <doflow@localhost> 0 +0000"
_BACK = "doflow: put back"


class Holding:
    """One ref of ours (`refs/doflow/held/<run>`) whose parents are all that other refs and stashes point at."""

    def __init__(self, run: str) -> None:
        self._ref = f"refs/doflow/held/{run}"
        self._seen = ""
        self._tags: dict[str, bytes] = {}  # the objects of annotated tags: no commit can hold them

    def renew(self, git: Git) -> dict[str, str]:
        """Done again only when refs other than the run's own branch have changed. Gives every ref there is."""
        head = git.head
        known = every.every(head)
        ids = {value for ref, value in known.items() if _counts(ref, head.ref) and refs.is_id(value)}
        ids = (ids | _stashes(head.common_dir)) - {head.commit, known.get(head.ref, "")}
        seen = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
        if not ids or seen == self._seen:
            return known
        commits, tags = _sorted(git, sorted(ids))
        self._tags = {ident: git.run("cat-file", "tag", ident) for ident in tags}
        if commits and _said(git, known.get(self._ref, "")) != seen:
            lines = [f"tree {_empty(git)}", *(f"parent {ident}" for ident in commits)]
            text = "\n".join((*lines, f"author {_WHO}", f"committer {_WHO}", "", seen, ""))
            made = git.run("hash-object", "-t", "commit", "-w", "--stdin", input=text.encode()).decode().strip()
            git.run("update-ref", self._ref, made)
            known[self._ref] = made
        self._seen = seen
        return known

    def revive(self, git: Git, ident: str) -> None:
        """Write the object of an annotated tag again, should it be gone."""
        if ident in self._tags and git.call("cat-file", "-e", ident)[0]:
            git.run("hash-object", "-t", "tag", "-w", "--stdin", input=self._tags[ident])


def keep(git: Git, ref: str, value: str) -> str:
    """Keep a commit under this name; '' if there is nothing to keep."""
    if not refs.is_id(value) or git.call("update-ref", ref, value)[0]:
        return ""
    return ref


def back(git: Git, ref: str, value: str, there: bool) -> bool:
    """Let a ref be what it was, whatever it stands for now; one that is not `there` only as long as nobody makes it."""
    target = value.removeprefix("ref: ")
    if target != value:
        return not git.call("symbolic-ref", "-m", _BACK, ref, target)[0]
    return not git.call("update-ref", "--no-deref", "-m", _BACK, ref, value, *(() if there else ("",)))[0]


def _counts(ref: str, own: str) -> bool:
    return ref not in ("HEAD", own) and not ref.startswith(("refs/doflow/", "refs/remotes/"))


def _stashes(common: str) -> set[str]:
    """A stash below the topmost is named in the log of refs/stash alone."""
    lines = refs.small(os.path.join(common, "logs", "refs", "stash"), limit=1 << 22).splitlines()
    return {words[1] for line in lines if len(words := line.split(" ", 2)) == 3 and refs.is_id(words[1])}


def _said(git: Git, commit: str) -> str:
    """The message of the commit that holds them now."""
    if not commit:
        return ""
    code, out, _ = git.call("cat-file", "commit", commit)
    return "" if code else out.decode("utf-8", "replace").strip().rpartition("\n")[2]


def _sorted(git: Git, ids: list[str]) -> tuple[list[str], list[str]]:
    """The commits that these stand for, and those of them that are tag objects."""
    asked = "".join(f"{ident}\n{ident}^{{commit}}\n" for ident in ids).encode()
    answers = git.run("cat-file", "--batch-check", input=asked).decode("utf-8", "replace").splitlines()
    found = [line.split() for line in answers]
    known = {(words[0], words[1]) for words in found if len(words) == 3}
    commits, tags = (sorted(ident for ident, kind in known if kind == wanted) for wanted in ("commit", "tag"))
    return commits, tags


def _empty(git: Git) -> str:
    return git.run("hash-object", "-t", "tree", "-w", "/dev/null").decode().strip() or private.EMPTY[40]
