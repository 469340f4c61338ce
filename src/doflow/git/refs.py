"""Refs, whatever their storage; branches: creating, switching, checking names; and the git identity."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from doflow.git import head_reader, private_index
from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.util.errors import WorldError


def all_refs(git: Repository) -> dict[str, str]:
    """Full name -> id, or `ref: …` for a symbolic one; HEAD among them."""
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname) %(symref)")
    found: dict[str, str] = {}
    for line in listed.decode("utf-8", "surrogateescape").splitlines():
        ident, ref, target = line.split(" ", 2)
        found[ref] = f"ref: {target}" if target else ident
    code, out, _ = git.call("symbolic-ref", "-q", "HEAD")
    if not code:
        return found | {"HEAD": f"ref: {out.decode('utf-8', 'surrogateescape').strip()}"}
    return found | {"HEAD": git.call("rev-parse", "-q", "--verify", "HEAD")[1].decode().strip()}


def commit_of(head: Head, ref: str) -> str:
    """The id of a full ref name (`refs/heads/main`), '' if it does not exist."""
    return Repository(head).call("rev-parse", "-q", "--verify", "--end-of-options", ref)[1].decode().strip()


def branch_refs(head: Head) -> list[str]:
    """Full names of all branches, local and remote."""
    listed = Repository(head).run("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")
    return listed.decode("utf-8", "surrogateescape").splitlines()


def branch_names(head: Head) -> frozenset[str]:
    """Short names of all local branches and of the remotes' branches (without the remote's name)."""
    return short_names(branch_refs(head))


def short_names(refs: list[str]) -> frozenset[str]:
    """The short names of branches."""
    return frozenset(filter(None, map(_short, refs)))


def _short(ref: str) -> str:
    if ref.startswith("refs/heads/"):
        return ref.removeprefix("refs/heads/")
    name = ref.removeprefix("refs/remotes/").partition("/")[2]
    return "" if name == "HEAD" else name


_WHO = "doflow <doflow@localhost> 0 +0000"
_BACK = "doflow: restore"


class Holding:
    """One ref of ours (`refs/doflow/held/<run>`) whose parents are all that other refs and stashes point at."""

    def __init__(self, run: str) -> None:
        self._ref = f"refs/doflow/held/{run}"
        self._seen = ""
        self._tags: dict[str, bytes] = {}  # the objects of annotated tags: no commit can hold them

    def renew(self, git: Repository) -> dict[str, str]:
        """Updated only when refs other than the run's own branch have changed. Returns all refs."""
        head = git.head
        known = all_refs(git)
        ids = {value for ref, value in known.items() if _counts(ref, head.ref) and head_reader.is_id(value)}
        ids = (ids | _stashes(git, known)) - {head.commit, known.get(head.ref, "")}
        seen = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
        if not ids or seen == self._seen:
            return known
        commits, tags = _sorted(git, sorted(ids))
        self._tags = {ident: git.run("cat-file", "tag", ident) for ident in tags}
        if commits and _message(git, known.get(self._ref, "")) != seen:
            lines = [f"tree {_empty(git)}", *(f"parent {ident}" for ident in commits)]
            text = "\n".join((*lines, f"author {_WHO}", f"committer {_WHO}", "", seen, ""))
            made = git.run("hash-object", "-t", "commit", "-w", "--stdin", input=text.encode()).decode().strip()
            git.run("update-ref", self._ref, made)
            known[self._ref] = made
        self._seen = seen
        return known

    def revive(self, git: Repository, ident: str) -> None:
        """Write the object of an annotated tag again if it is missing."""
        if ident in self._tags and git.call("cat-file", "-e", ident)[0]:
            git.run("hash-object", "-t", "tag", "-w", "--stdin", input=self._tags[ident])


def keep_commit(git: Repository, ref: str, value: str) -> str:
    """Keep a commit under this name; '' if there is nothing to keep."""
    if not head_reader.is_id(value) or git.call("update-ref", ref, value)[0]:
        return ""
    return ref


def restore_ref(git: Repository, ref: str, value: str, there: bool) -> bool:
    """Restore a ref to `value`; one that isn't `there` only if no one has created it meanwhile."""
    target = value.removeprefix("ref: ")
    if target != value:
        return not git.call("symbolic-ref", "-m", _BACK, ref, target)[0]
    return not git.call("update-ref", "--no-deref", "-m", _BACK, ref, value, *(() if there else ("",)))[0]


def _counts(ref: str, own: str) -> bool:
    return ref not in ("HEAD", own) and not ref.startswith(("refs/doflow/", "refs/remotes/"))


def _stashes(git: Repository, known: Mapping[str, str]) -> set[str]:
    """Stashes below the topmost are only in the reflog of refs/stash."""
    if "refs/stash" not in known:
        return set()
    return set(git.call("log", "-g", "--no-color", "--format=%H", "refs/stash", "--")[1].decode().split())


def _message(git: Repository, commit: str) -> str:
    """The last line of the message of the commit that holds them."""
    if not commit:
        return ""
    code, out, _ = git.call("cat-file", "commit", commit)
    return "" if code else out.decode("utf-8", "replace").strip().rpartition("\n")[2]


def _sorted(git: Repository, ids: list[str]) -> tuple[list[str], list[str]]:
    """The commits that these ids resolve to, and those that are tag objects."""
    asked = "".join(f"{ident}\n{ident}^{{commit}}\n" for ident in ids).encode()
    answers = git.run("cat-file", "--batch-check", input=asked).decode("utf-8", "replace").splitlines()
    found = [line.split() for line in answers]
    known = {(words[0], words[1]) for words in found if len(words) == 3}
    commits, tags = (sorted(ident for ident, kind in known if kind == wanted) for wanted in ("commit", "tag"))
    return commits, tags


def _empty(git: Repository) -> str:
    return git.run("hash-object", "-t", "tree", "-w", "/dev/null").decode().strip() or private_index.EMPTY[40]


def identity(head: Head) -> str:
    """`Name <mail>` that git would commit with, '' if not configured: none is ever made up."""
    git = Repository(head)
    other_author = any(name.startswith("GIT_COMMITTER_") for name in os.environ)
    if other_author and git.call("var", "GIT_AUTHOR_IDENT")[0]:
        return ""
    code, out, _ = git.call("var", "GIT_COMMITTER_IDENT")
    return "" if code else out.decode("utf-8", "replace").strip().rpartition("> ")[0] + ">"


def make_branch(head: Head, name: str, at: str = "") -> Head:
    """Create a branch at HEAD and check it out; the working tree and the index are not touched."""
    ref = branch_ref(head, name)
    if at and at != head.commit:
        raise WorldError(
            f"branch {name} cannot start at {at[:12]}: HEAD is at {head.commit[:12] or 'no commit yet'}",
            hint=f"check it out first: git switch --detach {at[:12]}",
        )
    if head.commit and commit_of(head, ref):
        raise WorldError(f"branch {name} already exists", hint=f"use it: git switch {name}")
    if head.commit:
        _create(head, ref)
    return _check_out(head, name, ref)


def switch_branch(head: Head, name: str) -> Head:
    """Check out a branch at the same commit as HEAD, so that no file changes."""
    ref = branch_ref(head, name)
    if ref == head.ref:
        return head
    commit = commit_of(head, ref)
    if not commit or commit != head.commit:
        what = f"is at {commit[:12]}, HEAD at {head.commit[:12]}" if commit else "does not exist"
        hint = f"switch to it: git switch {name}" if commit else f"create it: git switch -c {name}"
        raise WorldError(f"branch {name} {what}", hint=hint)
    return _check_out(head, name, ref)


def branch_ref(head: Head, name: str) -> str:
    """The full name of a branch; refuses an invalid name."""
    parts = name.split("/")
    if name != "HEAD" and all(map(_simple, parts)):
        return f"refs/heads/{name}"  # the names that doflow makes are always valid
    if name == "@" or Repository(head).call("check-ref-format", "--branch", name)[0]:
        raise WorldError(
            f"{name!r} is not a valid branch name", hint="letters, digits, - and / are safe: --branch=my-feature"
        )
    return f"refs/heads/{name}"


def refuse_clash(name: str, refs: list[str]) -> None:
    """Refuse a name that conflicts with these refs: `a` and `a/b` cannot both be branches."""
    ref = f"refs/heads/{name}"
    for other in refs:
        if other.startswith(f"{ref}/") or ref.startswith(f"{other}/"):
            there = other.removeprefix("refs/heads/")
            raise WorldError(
                f"branch {name} conflicts with the existing branch {there}",
                hint="choose another name: --branch=my-feature",
            )


def _simple(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum() and not name.startswith("-")


def _create(head: Head, ref: str) -> None:
    Repository(head).run("update-ref", "-m", "doflow: new branch", ref, head.commit, "0" * len(head.commit))


def _check_out(head: Head, name: str, ref: str) -> Head:
    Repository(head).run("symbolic-ref", "-m", f"doflow: on branch {name}", "HEAD", ref)
    return head_reader.find_head(head.root)
