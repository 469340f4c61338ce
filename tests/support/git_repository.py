"""A small git repository and one commit by `doflow.git` in it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from doflow.git import commit, head_reader
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

CONFIG = "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n"


MESSAGE = "plan: plan.md\n\nDoflow-Run: 001-login\nDoflow-Step: plan\nDoflow-Key: abc\n"


def git(where: Path, *args: str, check: bool = True, text: bool = True) -> Any:
    """What git prints: stripped text, or its bytes."""
    done = subprocess.run(["git", "-C", str(where), *args], capture_output=True, text=text, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip() if text else done.stdout


def repository(path: Path, *options: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", *options)
    for name in ("a.txt", "b.txt", "src/c.txt"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(f"{name}\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


def done(where: Path, *paths: str, message: str = MESSAGE, expect: str | None = None) -> str:
    """One commit; checks that the intent came first and that the repository is sound."""
    told: list[tuple[str, str]] = []
    repo = Repository(head_reader.find_head(where))
    base = head_reader.find_head(where).commit

    def ready(old: str, new: str) -> None:
        assert head_reader.find_head(where).commit == base, "the branch moved before the intent was written"
        told.append((old, new))

    new = commit.commit(repo, paths, message, ready, expect)
    if new:
        assert told == [(base, new)]
        assert head_reader.find_head(where).commit == new
        git(where, "fsck", "--strict")
    return new


def names(where: Path, rev: str = "HEAD") -> list[str]:
    """The paths of a commit, each with its status."""
    shown: str = git(where, "show", "--name-status", "--format=", "--no-renames", rev)
    return shown.splitlines()


def refused(top: Path, match: str, *paths: str, expect: str | None = None) -> WorldError:
    """The error of a commit that must fail and leave every ref as it was."""
    before = (top / ".git/HEAD").read_text(), git(top, "for-each-ref", "--format=%(refname) %(objectname)")
    with pytest.raises(WorldError, match=match) as caught:
        commit.commit(
            Repository(head_reader.find_head(top)), paths or ("a.txt",), MESSAGE, lambda old, new: None, expect
        )
    after = (top / ".git/HEAD").read_text(), git(top, "for-each-ref", "--format=%(refname) %(objectname)")
    assert after == before
    assert caught.value.hint
    return caught.value
