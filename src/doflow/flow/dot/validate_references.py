"""Files and folders that a pipeline names and that are not there: looked up on the disk, each with the node's line."""

from __future__ import annotations

import os
from collections.abc import Iterator

from doflow.flow.dot import node_text as brief
from doflow.flow.dot.model import CODERGEN, Node, Pipeline
from doflow.flow.dot.validate import WARNING, Remark


def missing(pipeline: Pipeline, root: str) -> Iterator[Remark]:
    """A worker would be told to read what nobody has written, or sent where there is nothing."""
    for node in pipeline.nodes:
        if node.handler != CODERGEN:
            continue
        design = brief.value(pipeline, node, "solution_design")
        folder = "" if node.get("worktree") else brief.value(pipeline, node, "target_dir")
        if design and not os.path.isfile(_at(root, design)):
            yield _remark(pipeline, node, "solution_design", f"the solution design {design}", "write it", root)
        if folder and not os.path.isdir(_at(root, folder)):
            yield _remark(pipeline, node, "target_dir", f"the folder {folder}", "make it", root)


def _at(root: str, said: str) -> str:
    return os.path.join(root, os.path.expanduser(said))


def _remark(pipeline: Pipeline, node: Node, name: str, what: str, deed: str, root: str) -> Remark:
    mend = f"doflow dot node modify {pipeline.path} {node.id} --set {name}=…"
    hint = f"{deed}, or mend its path, which begins at {root}: {mend}"
    return Remark(WARNING, name, node.line, node.id, f"{node.id} names {what}, which is not there", hint)
