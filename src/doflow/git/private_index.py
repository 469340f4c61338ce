"""A private index: the tree of a commit, separate from the user's index and not trusted if others touched it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from doflow.git.repository import Repository
from doflow.util import file_signature
from doflow.util.errors import WorldError
from doflow.util.file_signature import FileSignature

EMPTY = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}

#: per repository: commit and tree of its private index after our last use, and the file's signature
_seeded: WeakKeyDictionary[Repository, tuple[str, str, FileSignature | None]] = WeakKeyDictionary()


def index_path(git: Repository, name: str = "commit") -> str:
    return os.path.join(git.head.git_dir, f"doflow-{name}.index")


def seed(git: Repository, base: str) -> str:
    """Fill the private index with the tree of `base` ('' = no commit yet); returns the id of that tree.

    Nothing is done if it held that tree after our last use and no one touched the file since.
    """
    index = index_path(git)
    held, tree, mark = _seeded.get(git, ("", "", None))
    if held == base and base and mark and mark == signature(index):
        return tree
    discard(index)
    if not base:
        git.run("read-tree", "--empty", index=index)
        return ""
    git.run("read-tree", base, index=index)
    tree = git.run("rev-parse", "--verify", "--end-of-options", f"{base}^{{tree}}").decode().strip()
    _seeded[git] = (base, tree, signature(index))
    return tree


def id_length(git: Repository) -> int:
    """Length of an object id in this repository: 40 (SHA-1) or 64 (SHA-256)."""
    return len(git.run("hash-object", "-t", "tree", "/dev/null").strip())


def record_seed(git: Repository, base: str, tree: str) -> None:
    """Record that the private index now holds `tree`, the tree of `base`."""
    _seeded[git] = (base, tree, signature(index_path(git)))


def forget(git: Repository) -> None:
    _seeded.pop(git, None)


def signature(file: str) -> FileSignature | None:
    return file_signature.from_path(file, follow=False)


def discard(file: str) -> None:
    """Remove an index of ours, with the lock that a killed git left."""
    for path in (file, file + ".lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def add_paths(git: Repository, index: str, paths: list[str]) -> None:
    """Update exactly these paths of the private index from the working tree (deleted = removed)."""
    known: dict[str, bool] = {"": False}
    gone = [path for path in paths if is_gone(git.head.top, path, known)]
    if gone:
        nothing = b"0 " + b"0" * id_length(git) + b"\t"
        lines = b"".join(nothing + os.fsencode(path) + b"\0" for path in gone)
        git.run("update-index", "-z", "--index-info", input=lines, index=index)
    update_paths(git, index, [os.fsencode(path) for path in paths if path not in set(gone)])


def is_gone(top: str, path: str, known: dict[str, bool]) -> bool:
    """Whether `path` is a folder, or one of its folders is a link: for git the file is deleted."""
    whole = os.path.join(top, path)
    return _beyond(top, path.rpartition("/")[0], known) or (os.path.isdir(whole) and not os.path.islink(whole))


def _beyond(top: str, folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        above = _beyond(top, folder.rpartition("/")[0], known)
        known[folder] = above or os.path.islink(os.path.join(top, folder))
    return known[folder]


def update_paths(
    git: Repository, index: str, paths: Sequence[bytes], known: Mapping[bytes, tuple[bytes, bytes]] | None = None
) -> None:
    """Add these paths from the working tree; `known`: (mode, id) of files to put into the index first."""
    given = [b"%s,%s,%s" % (*entry, path) for path, entry in (known or {}).items()]
    if not paths and not given:
        return
    words = [word for entry in given for word in ("--cacheinfo", os.fsdecode(entry))]
    args = ("update-index", "-z", "--add", "--remove", "--replace", *words, "--stdin")
    code, _, err = git.call(*args, input=b"".join(path + b"\0" for path in paths), index=index)
    ignored = [line for line in err.splitlines() if line.startswith("Ignoring path")]
    if code or ignored:
        said = "; ".join(ignored) or " ".join(err.split()) or f"exit code {code}"
        raise WorldError(f"git cannot add the files of the step: {said}", hint="see: git status")
