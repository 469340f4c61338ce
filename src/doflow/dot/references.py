"""Files that a pipeline names and that are not there: looked up on the disk, each with the node's line."""

from __future__ import annotations

import os
from collections.abc import Iterator

from doflow.dot import brief
from doflow.dot.checks import WARNING, Remark
from doflow.dot.model import CODERGEN, Pipeline


def missing(pipeline: Pipeline, root: str) -> Iterator[Remark]:
    """A worker would be told to read a solution design that nobody has written."""
    for node in pipeline.nodes:
        design = brief.value(pipeline, node, "solution_design") if node.handler == CODERGEN else ""
        if design and not os.path.isfile(os.path.join(root, os.path.expanduser(design))):
            message = f"{node.id} names the solution design {design}, which is not there"
            mend = f"doflow dot node modify {pipeline.path} {node.id} --set solution_design=…"
            hint = f"write it, or mend its path, which begins at {root}: {mend}"
            yield Remark(WARNING, "solution_design", node.line, node.id, message, hint)
