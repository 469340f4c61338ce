"""Reading back: commits of a run by their trailers, files of a commit, what git tracks and what it ignores."""

from __future__ import annotations

import os
from collections.abc import Sequence

from doflow.git import private_index as private, repository as look
from doflow.git.runner import Git
from doflow.git.runner_quick import failed
from doflow.util.errors import WorldError

_ABSENT = ("does not exist in", "exists on disk, but not in", "nvalid object name", "bad revision", "bad file")


def history(git: Git, run: str) -> tuple[dict[str, str], ...]:
    """Commits in HEAD's history with the trailer `Doflow-Run: <run>`, newest first.

    Each is `id`, `at`, `subject` and its `Doflow-*` trailers; one that several were squashed into is each of them.
    """
    if not look.find(git.head.root).commit:
        return ()
    asked = ("log", "-z", "--no-color", "--format=%H%n%cI%n%B", "--fixed-strings", f"--grep=Doflow-Run: {run}", "HEAD")
    listed = git.run(*asked).decode("utf-8", "replace")
    found = (entry for record in listed.split("\0") if record for entry in _entries(record))
    return tuple(entry for entry in found if entry.get("Doflow-Run") == run)


def _entries(record: str) -> list[dict[str, str]]:
    """What one commit tells, newest first: wherever in its message a `Doflow-Run` begins the trailers of a step."""
    commit, at, message = record.split("\n", 2)
    subject, _, rest = message.strip().partition("\n\n")
    found: list[dict[str, str]] = []
    for line in rest.splitlines():
        key, colon, value = line.strip().partition(": ")
        if colon and key == "Doflow-Run":
            found.append({"id": commit, "at": at, "subject": subject.replace("\n", " ")})
        if colon and key.startswith("Doflow-") and found:
            found[-1][key] = value.strip()
    return found[::-1]


def contains(git: Git, commit: str, exclude: str) -> bool:
    """Is what a commit changed outside the file `exclude` in HEAD: as another commit, reworded or rebased, or squashed?"""
    if not git.call("merge-base", "--is-ancestor", commit, "HEAD")[0]:
        return True
    code, out, _ = git.call("cherry", "HEAD", commit, f"{commit}^")
    if not code and out.startswith(b"-"):
        return True
    code, names, _ = git.call("diff-tree", "-r", "-z", "--name-only", "--no-commit-id", "--no-renames", commit)
    paths = [os.fsdecode(name) for name in names.split(b"\0") if name]
    paths = [path for path in paths if path != exclude]
    return not code and (not paths or not git.call("diff", "--quiet", commit, "HEAD", "--", *paths)[0])


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


def parent(git: Git, rev: str) -> str:
    """The commit before `rev`; the empty tree if there is none."""
    code, out, _ = git.call("rev-parse", "--verify", "-q", f"{rev}^")
    return out.decode().strip() if not code else private.EMPTY[private.width(git)]


def diff(git: Git, base: str, exclude: str) -> str:
    """What HEAD changes against `base`, outside the folder `exclude`, as a patch."""
    asked = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", base, "HEAD", "--", ".")
    listed = git.run(*asked, f":(exclude){exclude}", env={"GIT_LITERAL_PATHSPECS": "0"})
    return listed.decode("utf-8", "replace")


def patch(git: Git, commit: str) -> str:
    """What one commit changed."""
    asked = ("show", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--format=", commit)
    return git.run(*asked).decode("utf-8", "replace")


def patches(git: Git, commits: Sequence[str], exclude: str) -> str:
    """What each of these commits changed outside `exclude`, without ids and line numbers: a rebase keeps it."""
    asked = ("show", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--format=", *commits, "--", ".")
    listed = git.run(*asked, f":(exclude){exclude}", env={"GIT_LITERAL_PATHSPECS": "0"}).decode("utf-8", "replace")
    return "\n".join(line for line in listed.split("\n") if not line.startswith(("index ", "@@ ")))


def blobs(git: Git, rev: str, since: str = "") -> dict[str, tuple[str, str]]:
    """Every file of commit `rev` ('' = none yet) below the project's root: path from there -> (mode, blob id).

    With `since` only what differs from that commit; mode '' = gone.
    """
    found: dict[str, tuple[str, str]] = {}
    if not rev:
        return found
    below = _below(git)
    if since:
        parts = git.run("diff-tree", "-r", "--raw", "-z", "--no-renames", since, rev).split(b"\0")
        for meta, name in zip(parts[::2], parts[1::2], strict=False):
            _, mode, _, ident, kind = meta.decode().split(" ")
            if name.startswith(below):
                found[os.fsdecode(name[len(below) :])] = ("", "") if kind == "D" else (mode, ident)
        return found
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


def untracked(git: Git, folder: str) -> tuple[str, ...]:
    """Files below a folder (from the top of the work tree) that git neither knows nor ignores."""
    listed = git.run("ls-files", "-z", "-o", "--exclude-standard", "--", folder)
    return tuple(sorted(os.fsdecode(name) for name in listed.split(b"\0") if name))


def ignoring(git: Git, paths: Sequence[str]) -> frozenset[str]:
    """Those of these paths (from the project's root, not tracked) that a rule of git's ignores."""
    below = _below(git)
    asked = b"".join(b"./" + below + os.fsencode(path) + b"\0" for path in paths)  # a leading ':' would be magic
    code, out, _ = git.call("check-ignore", "-z", "--stdin", input=asked, env={"GIT_LITERAL_PATHSPECS": "0"})
    told = {os.fsdecode(name[2 + len(below) :]) for name in out.split(b"\0")} if code == 0 else set()
    return frozenset(told.intersection(paths))


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


def beside(git: Git) -> tuple[str, ...]:
    """Files of the work tree outside the project's root, from the top, that differ from the index or are not in it."""
    below = _below(git)
    listed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard")
    names = dict.fromkeys(name for name in listed.split(b"\0") if name and below and not name.startswith(below))
    return tuple(os.fsdecode(name) for name in names)


def _below(git: Git) -> bytes:
    """The project's root as seen from the top of the work tree: b'' or b'apps/shop/'."""
    return os.fsencode(git.head.root[len(git.head.top) :].strip("/") + "/").lstrip(b"/")


def _mine(git: Git, listing: bytes) -> tuple[str, ...]:
    below = _below(git)
    names = {os.fsdecode(name[len(below) :]) for name in listing.split(b"\0") if name.startswith(below)}
    return tuple(sorted(names - {""}))


def _under(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder.rstrip("/") or name.startswith(folder.rstrip("/") + "/") for folder in folders)
