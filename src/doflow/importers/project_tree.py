"""The files of a project, listed once and with a limit, and small files read from it."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from doflow.flow.parsing import document, loader
from doflow.flow.parsing.document import Doc
from doflow.util.errors import FlowError, Problem

LIMIT = 50_000
DEPTH = 8
LARGEST = 20_000_000
#: folders of dependencies and build results
SKIPPED = frozenset((
    ".doflow", ".git", ".hg", ".svn", ".venv", "venv", "env", "node_modules", "bower_components", "vendor", "dist", "build",
    "out", "target", "coverage", "__pycache__", ".tox", ".nox", ".next", ".nuxt", ".cache", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".gradle", ".idea", ".terraform", "site-packages", "Pods",
))  # fmt: skip


@dataclass(frozen=True)
class ProjectTree:
    """The files of a project, relative to its root, in order. `complete` is false if there were more than the limit."""

    root: Path
    files: tuple[str, ...]
    complete: bool = True

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.files)

    @cached_property
    def folders(self) -> frozenset[str]:
        found: set[str] = set()
        for file in self.files:
            folder = os.path.dirname(file)
            while folder and folder not in found:
                found.add(folder)
                folder = os.path.dirname(folder)
        return frozenset(found)

    def matching(self, pattern: str) -> Iterator[re.Match[str]]:
        """The files whose whole path matches a regular expression."""
        find = re.compile(pattern).fullmatch
        return (match for file in self.files if (match := find(file)))

    def paths(self, pattern: str) -> tuple[str, ...]:
        return tuple(match[0] for match in self.matching(pattern))

    def read_yaml(self, path: str) -> Doc:
        """A strict YAML file, but for keys such as `1` and `true`; FlowError for anything else."""
        return loader.load_document(self.root / path, path, any_key=True)

    def read_text(self, path: str) -> str:
        return document.read_text(str(self.root / path), path)

    def read_bytes_as_text(self, path: str) -> str:
        """A task list or a data file, up to 20 MB, with odd bytes and line ends kept."""
        full = self.root / path
        if not full.is_file() or full.stat().st_size > LARGEST:
            message = f"is larger than {LARGEST:,} bytes" if full.is_file() else "is not a regular file"
            raise FlowError((Problem(path, 1, 1, message),))
        with open(full, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()

    def read_json(self, path: str) -> Any:
        """A JSON file without duplicate keys."""
        return parse_json(self.read_bytes_as_text(path), path)


def list_project(root: Path, ignored: Collection[str] = (), limit: int = LIMIT) -> ProjectTree:
    """The files of a project, breadth first. `ignored` are folders that git ignores; links to folders are not followed."""
    files: list[str] = []
    waiting = deque([("", 0)])
    left = limit
    while waiting:
        folder, depth = waiting.popleft()
        for entry in _entries(root / folder):
            left -= 1
            if left < 0:
                return ProjectTree(root, tuple(sorted(files)), complete=False)
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                if not entry.is_symlink() or entry.is_file():
                    files.append(path)
            elif entry.name not in SKIPPED and path not in ignored and depth < DEPTH:
                waiting.append((path, depth + 1))
    return ProjectTree(root, tuple(sorted(files)))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def parse_json(text: str, name: str, line: int = 0) -> Any:
    """JSON text; FlowError with a line for what is not, for duplicate keys and for values nested too deeply."""
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            duplicates.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return table

    try:
        value = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        raise FlowError((Problem(name, line or error.lineno, error.colno, f"not JSON: {error.msg}"),)) from None
    except (RecursionError, ValueError):
        raise FlowError((Problem(name, line or 1, 1, "not JSON that can be read: nested too deeply"),)) from None
    if duplicates:
        raise FlowError((Problem(name, line or 1, 1, f"duplicate key {duplicates[0]!r}", "remove one of them"),))
    return value
