"""The whole state of a pipeline as one JSON file beside it, for programs that read no DOT; written after each transition."""

from __future__ import annotations

import json
import os
from typing import Any

from doflow.flow.dot.model import Edge, Node, Pipeline
from doflow.util import atomic_files as files, timestamps

VERSION = "1.0.0"


def place(path: str | os.PathLike[str]) -> str:
    """Where the checkpoint of a pipeline stands."""
    return f"{os.fspath(path)}.checkpoint.json"


def write(pipeline: Pipeline, content_hash: str) -> None:
    """Put it there whole, on the disk when this returns. The writer holds the lock of the DOT file."""
    words = json.dumps(plain(pipeline, content_hash), ensure_ascii=False, indent=2) + "\n"
    files.write(place(pipeline.path), words.encode("utf-8"), alone=True)


def known(path: str) -> str:
    """The `content_hash` of the checkpoint that is there; '' = none, or none that can be read."""
    try:
        with open(place(path), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return ""
    return str(found.get("content_hash", "")) if isinstance(found, dict) else ""


def plain(pipeline: Pipeline, content_hash: str) -> dict[str, Any]:
    """The pipeline as JSON can say it."""
    return {
        "version": VERSION,
        "created_at": timestamps.now(),
        "source_file": os.path.basename(pipeline.path),
        "graph_name": pipeline.name,
        "graph_attrs": dict(pipeline.attributes),
        "defaults": dict(pipeline.defaults),
        "nodes": [node_plain(node) for node in pipeline.nodes],
        "edges": [edge_plain(edge) for edge in pipeline.edges],
        "content_hash": content_hash,
    }


def node_plain(node: Node) -> dict[str, Any]:
    named = ("label", "bead_id", "worker_type", "promise_ac")
    return {
        "id": node.id, "handler": node.handler, "status": node.status, "shape": node.shape,
        **{name: node.get(name) for name in named}, "line": node.line, "all_attrs": dict(node.attributes),
    }  # fmt: skip


def edge_plain(edge: Edge) -> dict[str, Any]:
    return {"from": edge.start, "to": edge.to, "condition": edge.condition, "attrs": dict(edge.attributes)}
