"""Every ref there is, read from git's own files; only a reftable is asked about with git itself."""

from __future__ import annotations

import os

from doflow.git import refs, runner_quick as quick
from doflow.git.head import Head


def every(head: Head) -> dict[str, str]:
    """Full name -> id, or `ref: …` for a symbolic one; HEAD among them. What is broken has its raw text."""
    found = _asked(head) if head.reftable else _files(head.common_dir)
    if head.git_dir != head.common_dir:
        found |= dict(_loose(head.git_dir))
    path = os.path.join(head.git_dir, "HEAD")
    text = f"ref: {os.readlink(path)}" if os.path.islink(path) else refs.small(path).strip()
    return found | {"HEAD": text}


def _files(common: str) -> dict[str, str]:
    return refs.packed(common) | dict(_loose(common))


def _loose(folder: str) -> list[tuple[str, str]]:
    found = []
    for place, _, names in os.walk(os.path.join(folder, "refs")):
        under = os.path.relpath(place, folder)
        for name in names:
            if not name.endswith(".lock"):
                found.append((f"{under}/{name}", refs.small(os.path.join(place, name)).strip()))
    return found


def _asked(head: Head) -> dict[str, str]:
    lines = quick.attempt(head, "for-each-ref", "--format=%(objectname) %(refname)")[1].decode(
        "utf-8", "surrogateescape"
    )
    return {ref: ident for ident, _, ref in (line.partition(" ") for line in lines.splitlines())}
