"""DOT pipelines: Attractor's dialect and others. doflow runs them as they are, so nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doflow.importers.model import Found, Imported
from doflow.importers.project_tree import ProjectTree

NAME = "dot"
MOST_FILES = 200
_GRAPH = re.compile(r"\bdigraph\b")
#: words of a pipeline; a drawing of something else has none of them
_WORDS = re.compile(r"\b(?:Mdiamond|Msquare|handler|tool_command|worker_type|goal_gate|codergen|max_retries)\b")


def find(tree: ProjectTree) -> Found | None:
    files = [path for path in tree.paths(r".+\.(?:dot|gv)")[:MOST_FILES] if _is_pipeline(tree, path)]
    if not files:
        return None
    folders = tuple(sorted({path.rpartition("/")[0] or "." for path in files}))
    return Found(NAME, folders, (), (), tuple(files), (f"doflow validate {files[0]}", f"doflow dot status {files[0]}"))


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    return iter(())


def _is_pipeline(tree: ProjectTree, path: str) -> bool:
    try:
        with open(tree.root / path, encoding="utf-8", errors="replace") as file:
            text = file.read(200_000)
    except OSError:
        return False
    return bool(_GRAPH.search(text) and _WORDS.search(text))
