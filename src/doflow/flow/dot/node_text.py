"""What a worker is told about its node: the words of the DOT file, put in order. Pure."""

from __future__ import annotations

from doflow.flow.dot.model import Node, Pipeline, plain

_LINES = (
    ("prd_ref", "The requirements are in", ""),
    ("prd_section", "The section that concerns you:", ""),
    ("solution_design", "The solution design, which you read first:", "`"),
    ("target_dir", "Work in the folder", "`"),
    ("bead_id", "The issue that this belongs to:", ""),
    ("worker_type", "You work as:", ""),
)


def value(pipeline: Pipeline, node: Node, name: str) -> str:
    """An attribute of a node; what it does not say itself (`prd_ref`) the graph says for all."""
    return node.get(name) or (pipeline.get(name) if name in ("prd_ref", "solution_design", "target_dir") else "")


def text(pipeline: Pipeline, node: Node) -> str:
    """The assignment: what to do, where it is described, and when it is done."""
    lines = [f"# {node.label}", ""]
    if node.get("prompt"):
        lines += [plain(node.get("prompt")), ""]
    for name, words, quote in _LINES:
        said = value(pipeline, node, name)
        lines += [f"- {words} {quote}{said}{quote}"] if said else []
    acceptance = plain(node.get("acceptance"))
    if acceptance:
        lines += ["", "## It is accepted when", "", acceptance]
    return "\n".join(lines).rstrip() + "\n"


def review(pipeline: Pipeline, node: Node, judged: tuple[Node, ...]) -> str:
    """What a reviewer is told: whose work it looks at, and what was to be reached."""
    lines = [f"# {node.label}", ""]
    lines += [plain(node.get("prompt")), ""] if node.get("prompt") else []
    lines += ["Look at the work and decide whether it is accepted. Change nothing.", ""]
    for one in judged:
        lines += [f"## The assignment of {one.id}", "", text(pipeline, one)]
    if node.get("acceptance"):
        lines += ["## It is accepted when", "", plain(node.get("acceptance"))]
    return "\n".join(lines).rstrip() + "\n"
