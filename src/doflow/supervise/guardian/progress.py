"""What of a pipeline is still to come, and which failures it has dealt with itself. Pure: a graph in, names out."""

from __future__ import annotations

from doflow.flow.dot import order as graph
from doflow.flow.dot.model import CONDITION, FAILED, PENDING, TERMINAL, Node, Pipeline
from doflow.util.errors import DoflowError


def refuse_deadlock(pipeline: Pipeline) -> None:
    """Nodes that wait for each other would wait for ever."""
    names = left(pipeline)
    moving = any(node.status not in (*TERMINAL, PENDING) for node in pipeline.nodes) or graph.ready(pipeline)
    if names and not moving and not any(node.status == FAILED for node in pipeline.nodes):
        waits = "; ".join(f"{name} waits for {', '.join(graph.dependencies(pipeline, name))}" for name in names)
        raise DoflowError(f"{pipeline.path}: nothing can go on: {waits}", f"doflow validate {pipeline.path}")


def left(pipeline: Pipeline) -> list[str]:
    """The nodes that are still to come to an end."""
    skipped = set(graph.skipped(pipeline))
    sent = {node.id for node in pipeline.nodes if graph.retries(node)}
    idle = {name for name, senders in graph.order(pipeline).repairs.items() if not sent & set(senders)}
    return [node.id for node in pipeline.nodes if node.status not in TERMINAL and node.id not in skipped | idle]


def dealt_with(pipeline: Pipeline, node: Node) -> bool:
    """A failure that the pipeline itself has dealt with: a diamond went on by its other edge."""
    if node.handler == CONDITION:
        return any(edge.condition == "fail" for edge in pipeline.out_of(node.id)) and not graph.body(pipeline, node.id)
    after = [found for edge in pipeline.out_of(node.id) if (found := pipeline.node(edge.to))]
    return bool(after) and all(found.handler == CONDITION and dealt_with(pipeline, found) for found in after)


def for_a_diamond(pipeline: Pipeline, node: Node) -> bool:
    """A failure that a diamond decides on, so that nobody else needs to; or one that is dealt with."""
    after = [found for edge in pipeline.out_of(node.id) if (found := pipeline.node(edge.to))]
    waited = node.handler != CONDITION and bool(after) and all(found.handler == CONDITION for found in after)
    return waited or dealt_with(pipeline, node)
