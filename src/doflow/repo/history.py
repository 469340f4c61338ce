"""Reading back: commits of a run by their trailers, files of a commit, what git tracks and what it ignores."""

from __future__ import annotations

import os

from doflow.errors import WorldError
from doflow.repo import look, private
from doflow.repo.git import Git
from doflow.repo.quick import failed

_ABSENT = ("does not exist in", "exists on disk, but not in", "nvalid object name", "bad revision", "bad file")


def history(git: Git, run: str) -> tuple[dict[str, str], ...]:
    """Commits in HEAD's history with the trailer `Doflow-Run: <run>`, newest first.

    Each is `id`, `at`, `subject` and its `Doflow-*` trailers.
    """
    if not look.find(git.head.root).commit:
        return ()
    asked = ("log", "-z", "--no-color", "--format=%H%n%cI%n%B", "--fixed-strings", f"--grep=Doflow-Run: {run}", "HEAD")
    listed = git.run(*asked).decode("utf-8", "replace")
    found = (_entry(record) for record in listed.split("\0") if record)
    return tuple(entry for entry in found if entry.get("Doflow-Run") == run)


def _entry(record: str) -> dict[str, str]:
    commit, at, message = record.split("\n", 2)
    paragraphs = message.strip().split("\n\n")
    entry = {"id": commit, "at": at, "subject": paragraphs[0].replace("\n", " ")}
    for line in paragraphs[-1].splitlines() if len(paragraphs) > 1 else ():
        key, colon, value = line.partition(": ")
        if colon and key.startswith("Doflow-"):
            entry[key] = value.strip()
    return entry


def show(git: Git, rev: str, path: str) -> bytes | None:
    """The bytes of `path` (from the top of the work tree) in `rev`, None if it is not there."""
    if rev.startswith("-") or not rev:
        raise WorldError(f"{rev!r} is not a commit", hint="see the commits: git log --oneline")
    args = ("cat-file", "blob", f"{rev}:{path}")
    code, out, err = git.call(*args)
    if code and any(words in err for words in _ABSENT):
        return None
    if code:
        raise failed(args, code, err)
    return out


def blob(git: Git, ident: str) -> bytes:
    """The bytes of a blob by its id."""
    return git.run("cat-file", "blob", ident)


def blobs(git: Git, rev: str) -> dict[str, tuple[str, str]]:
    """Every file of commit `rev` ('' = none yet) below the project's root: path from there -> (mode, blob id)."""
    found: dict[str, tuple[str, str]] = {}
    if not rev:
        return found
    below = _below(git)
    for line in git.run("ls-tree", "-r", "-z", "--full-tree", rev).split(b"\0"):
        meta, tab, name = line.partition(b"\t")
        if tab and name.startswith(below):
            mode, _, ident = meta.decode().split(" ")
            found[os.fsdecode(name[len(below) :])] = (mode, ident)
    return found


def ignored(git: Git) -> tuple[str, ...]:
    """What git ignores below the project's root, from there; a wholly ignored folder is one entry ending in '/'."""
    listed = git.run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
    return _mine(git, listed)


def dirty(git: Git, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Tracked files below the project's root that differ from HEAD, or are staged so, outside the folders `exclude`.

    The work tree is compared with an index of our own: marks like assume-unchanged in the person's hide nothing.
    """
    base = look.find(git.head.root).commit
    tree = private.seed(git, base)
    index = private.path(git)
    git.call("update-index", "-q", "--refresh", index=index)
    differ = git.run("diff-files", "--name-only", "-z", "--ignore-submodules=dirty", index=index)
    private.settle(git, base, tree)
    against = base or private.EMPTY[private.width(git)]
    staged = git.run("diff-index", "--cached", "--name-only", "-z", "--no-renames", against)
    return tuple(name for name in _mine(git, differ + staged) if not _under(name, exclude))


def _below(git: Git) -> bytes:
    """The project's root as seen from the top of the work tree: b'' or b'apps/shop/'."""
    return os.fsencode(git.head.root[len(git.head.top) :].strip("/") + "/").lstrip(b"/")


def _mine(git: Git, listing: bytes) -> tuple[str, ...]:
    below = _below(git)
    names = {os.fsdecode(name[len(below) :]) for name in listing.split(b"\0") if name.startswith(below)}
    return tuple(sorted(names - {""}))


def _under(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder.rstrip("/") or name.startswith(folder.rstrip("/") + "/") for folder in folders)
