"""A private index: the tree of a commit, kept beside the person's index and never trusted when touched by others."""

from __future__ import annotations

import contextlib
import os

from doflow.git.runner import Git
from doflow.util.errors import WorldError

EMPTY = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


def path(git: Git, name: str = "commit") -> str:
    return os.path.join(git.head.git_dir, f"doflow-{name}.index")


def seed(git: Git, base: str) -> str:
    """Make the private index hold the tree of `base` ('' = nothing yet); gives the id of that tree.

    It is left as it is when it held that tree at the end of our last deed and nobody touched the file since.
    """
    index = path(git)
    held, tree, mark = git.seeded
    if held == base and base and mark and mark == signature(index):
        return tree
    remove(index)
    remove(index + ".lock")
    if not base:
        git.run("read-tree", "--empty", index=index)
        return ""
    git.run("read-tree", base, index=index)
    tree = git.run("rev-parse", "--verify", "--end-of-options", f"{base}^{{tree}}").decode().strip()
    git.seeded = (base, tree, signature(index))
    return tree


def width(git: Git) -> int:
    """How long an object id is here: 40 (SHA-1) or 64 (SHA-256)."""
    return len(git.run("hash-object", "-t", "tree", "/dev/null").strip())


def settle(git: Git, base: str, tree: str) -> None:
    """Note that the private index now holds `tree`, the tree of `base`."""
    git.seeded = (base, tree, signature(path(git)))


def forget(git: Git) -> None:
    git.seeded = ("", "", ())


def signature(file: str) -> tuple[int, ...]:
    try:
        it = os.lstat(file)
    except OSError:
        return ()
    return (it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns)


def remove(file: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)


def add(git: Git, index: str, paths: list[str]) -> None:
    """Bring exactly these paths of the private index to what the work tree holds (gone = removed)."""
    known: dict[str, bool] = {"": False}
    gone = [path for path in paths if _gone(git.head.top, path, known)]
    if gone:
        nothing = b"0 " + b"0" * width(git) + b"\t"
        lines = b"".join(nothing + os.fsencode(path) + b"\0" for path in gone)
        git.run("update-index", "-z", "--index-info", input=lines, index=index)
    left = paths if not gone else [path for path in paths if path not in set(gone)]
    data = b"".join(os.fsencode(path) + b"\0" for path in left)
    if data:
        _update(git, index, data)


def _gone(top: str, path: str, known: dict[str, bool]) -> bool:
    """A folder stands at `path`, or a link stands for one of its folders: for git the file is not there."""
    whole = os.path.join(top, path)
    return _beyond(top, path.rpartition("/")[0], known) or (os.path.isdir(whole) and not os.path.islink(whole))


def _beyond(top: str, folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        above = _beyond(top, folder.rpartition("/")[0], known)
        known[folder] = above or os.path.islink(os.path.join(top, folder))
    return known[folder]


def _update(git: Git, index: str, data: bytes) -> None:
    code, _, err = git.call("update-index", "-z", "--add", "--remove", "--replace", "--stdin", input=data, index=index)
    ignored = [line for line in err.splitlines() if line.startswith("Ignoring path")]
    if code or ignored:
        said = "; ".join(ignored) or " ".join(err.split()) or f"exit code {code}"
        raise WorldError(f"git cannot take what the step made: {said}", hint="see what git says: git status")
