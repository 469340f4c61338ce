"""A tool and the chain of steps it is given: its files, its command, and how it is brought back to "never run"."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INPUTS, OUTPUTS = "in", "out"


@dataclass(frozen=True, slots=True)
class Chain:
    """`size` steps, one after the other. `reads`: each has an input file; `makes`: each makes a file and commits it;
    `signal`: the first step writes to this pipe and fails."""

    size: int
    reads: bool = True
    makes: bool = False
    signal: str = ""

    def command(self, number: int) -> list[str]:
        if self.signal and number == 1:
            return ["sh", "-c", f"echo > {self.signal}; exit 1"]
        return ["true"]


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool in its environment. `base`: the row that others are compared with."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    base: bool = False
    most: int = 100_000  # the longest chain it is tried with
    remembers: bool = True  # what it has done: a second run may find nothing to do

    def write(self, root: Path, chain: Chain) -> None:
        """A project in a git repository, everything committed."""
        (root / INPUTS).mkdir(parents=True)
        for number in range(1, chain.size + 1):
            (root / INPUTS / f"{number}.txt").write_text(f"{number}\n")
        self.files(root, chain)
        (root / ".gitignore").write_text("/.doit.db*\n/done/\n__pycache__/\n/.ninja_*\n")
        self.git(root, "init", "-q", "-b", "main")
        self.git(root, "config", "user.name", "B")
        self.git(root, "config", "user.email", "b@example.org")
        self.git(root, "add", "-A")
        self.git(root, "commit", "-q", "-m", "Begin")
        self.git(root, "tag", "begin")

    def files(self, root: Path, chain: Chain) -> None:
        raise NotImplementedError

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        """Reset to "never run". `keep`: files below `.doflow` that stay."""
        self.git(root, "checkout", "-q", "-f", "-B", "main", "begin")
        for ref in self.git(root, "for-each-ref", "--format=%(refname)").split():
            if ref not in ("refs/heads/main", "refs/tags/begin"):
                self.git(root, "update-ref", "-d", ref)
        for place in [*root.glob(".doit.db*"), *root.glob(".ninja_*"), *(root / n for n in ("done", "specs", OUTPUTS))]:
            remove(place)
        for place in sorted((root / ".doflow").glob("*")):
            if place.name not in keep:
                remove(place)
        if not keep:
            remove(root / ".doflow")

    def first(self) -> list[str]:
        """The command of the first run."""
        return list(self.argv)

    def again(self) -> list[str]:
        """The command that resumes or finds nothing to do."""
        return list(self.argv)

    def git(self, root: Path, *words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=root, env=dict(self.env), text=True)


def remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
