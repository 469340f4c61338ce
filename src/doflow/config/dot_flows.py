"""The DOT pipelines that a project's settings name, as flows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from doflow.flow.dot import compile as translate
from doflow.flow.model import Flow
from doflow.util.errors import FlowError, Problem, UsageError, WorldError


def flows(
    root: Path, named: Iterable[tuple[str, str]], taken: Collection[str]
) -> Iterator[tuple[str, Flow | FlowError]]:
    """Each pipeline by name: its flow, or what is wrong with it. A name that a flow has already is wrong."""
    for name, said in named:
        path = said.lstrip("/")
        try:
            if name in taken:
                message = f"there is a flow {name} already, and a pipeline of the same name"
                raise FlowError((Problem("doflow.yaml", 0, 0, message, "give one of them another name"),))
            yield name, translate.flow(str(root / path), name, path)
        except FlowError as error:
            yield name, error
        except WorldError as error:
            yield name, FlowError((Problem(path, 0, 0, error.message, "mend `pipelines:` in doflow.yaml"),))


def locate(root: Path, word: str, environ: Mapping[str, str]) -> Path:
    """The DOT file that a word means: a path, or the name of a pipeline in doflow.yaml."""
    if os.path.exists(word) or word.endswith((".dot", ".gv")) or os.sep in word:
        return Path(word)
    from doflow.config import settings

    named = dict(settings.load(root, environ).pipelines)
    if word in named:
        return root / named[word].lstrip("/")
    known = f"pipelines of doflow.yaml: {', '.join(named)}" if named else "doflow.yaml names no `pipelines:`"
    raise UsageError(f"there is no file and no pipeline {word}", known)
