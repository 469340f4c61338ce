"""git's refs as files: HEAD, loose refs and packed-refs, read without asking git."""

from __future__ import annotations

import os
import stat

from doflow.util.errors import WorldError

_HEX = frozenset("0123456789abcdef")
_LONGEST_CHAIN = 5
_OWN = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")


def head(git_dir: str, common: str) -> tuple[str, str]:
    """(full ref name or '', commit id or '') of HEAD."""
    path = os.path.join(git_dir, "HEAD")
    text = os.readlink(path) if os.path.islink(path) else small(path).strip()
    ref = text.removeprefix("ref:").strip() if text.startswith("ref:") or os.path.islink(path) else ""
    if ref:
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            raise garbage(path)
        return ref, resolve(git_dir, common, ref)
    if not is_id(text):
        raise garbage(path)
    return "", text


def resolve(git_dir: str, common: str, ref: str) -> str:
    """The id a full ref name stands for, '' if there is none."""
    for _ in range(_LONGEST_CHAIN):
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            return ""
        path = os.path.join(git_dir if ref.startswith(_OWN) else common, ref)
        text = small(path).strip()
        if not text:
            if os.path.isfile(path):
                raise garbage(path)
            return packed(common).get(ref, "")
        if is_id(text):
            return text
        if not text.startswith("ref:"):
            raise garbage(path)
        ref = text.removeprefix("ref:").strip()
    return ""


def packed(common: str) -> dict[str, str]:
    """packed-refs: full name -> id."""
    found: dict[str, str] = {}
    for line in small(os.path.join(common, "packed-refs"), limit=1 << 28).splitlines():
        commit, _, ref = line.partition(" ")
        if ref and is_id(commit):
            found[ref] = commit
    return found


def names(common: str) -> list[str]:
    """Full names of all branches, local and remote."""
    found = [ref for ref in packed(common) if ref.startswith(("refs/heads/", "refs/remotes/"))]
    for family in ("refs/heads", "refs/remotes"):
        base = os.path.join(common, family)
        for folder, _, files in os.walk(base):
            under = os.path.relpath(folder, common)
            found += [f"{under}/{name}" for name in files if not name.endswith(".lock")]
    return found


def is_id(text: str) -> bool:
    return len(text) in (40, 64) and _HEX.issuperset(text)


def small(path: str, limit: int = 1 << 16) -> str:
    """The text of a small regular file, '' if there is none; a pipe in its place never blocks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        parts = []
        while limit > 0 and (part := os.read(fd, limit)):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def garbage(path: str) -> WorldError:
    return WorldError(
        f"{path} is broken: it names neither a branch nor a commit",
        hint="see what git says (git status); to put HEAD back on a branch: git symbolic-ref HEAD refs/heads/NAME",
    )
