"""What a runner is told to get done, and the words that the orchestrator gets for it. From a node's attributes alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from doflow.flow import plan
from doflow.flow.dot.model import Node, Pipeline
from doflow.flow.model import Settings
from doflow.supervise.panes import programs
from doflow.util.records import dataclass, field, replace

#: what the orchestrator is told of a node, in this order
TOLD = {
    "prd_ref": "PRD", "prd_section": "Section of the PRD", "solution_design": "Solution design",
    "acceptance": "Acceptance criteria", "target_dir": "Work in the folder", "bead_id": "Bead",
    "worker_type": "Let this kind of worker do it", "promise_ac": "Promised criterion",
}  # fmt: skip
#: of the drawing, or for us
_OURS = frozenset({
    "label", "shape", "status", "style", "fillcolor", "color", "fontcolor", "fontname", "fontsize", "handler", "pos",
    "width", "height", "penwidth", "tooltip", "xlabel", "margin", "peripheries", "retry_count", "max_retries", "validate",
    "check", "reviewer", "judge", "agent", "model", "forbid", "question", "writes", "timeout", "working_dir", "gate", "mode",
    "output_style", "worktree", "stuck", "command",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at one node. `fresh` = in a new session; else a living one is only told the feedback."""

    node: str
    pipeline: str
    label: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    agent: str = "default"
    model: str = ""
    cwd: str = ""
    style: str = ""
    forbid: tuple[str, ...] = ()
    stuck: float = 300.0
    judge: str = ""
    attempt: int = 1
    feedback: str = ""
    fresh: bool = True


def of_node(node: Node, pipeline: Pipeline, name: str, root: str, settings: Settings) -> Assignment:
    """The assignment that a node's attributes make; the graph's `prd_ref` counts for a node without one."""
    told = {key: value for key, value in node.attributes if value}
    told.setdefault("prd_ref", pipeline.get("prd_ref"))
    place = told.get("worktree") or told.get("target_dir", "")
    forbid = [word.strip() for word in told.get("forbid", "").split(",") if word.strip()]
    return Assignment(
        node.id, name, node.label, told, agent_of(node, settings), told.get("model", ""),
        os.path.normpath(os.path.join(root, place)), told.get("output_style", settings.supervision.style),
        tuple(forbid), _seconds(told.get("stuck", ""), settings.supervision.stuck),
        told.get("judge", settings.supervision.judge),
    )  # fmt: skip


def agent_of(node: Node, settings: Settings) -> str:
    """Who does a node: as `route_agents` says for its id, else as it says, else as they say for its kind of worker."""
    worker = node.get("worker_type")
    return (
        plan.routed(node.id, settings) or node.get("agent") or (worker and plan.routed(worker, settings)) or "default"
    )


def prompt(assignment: Assignment, tells: bool) -> str:
    """The words of the orchestrator. `tells` = its program says itself when a turn is over."""
    told = assignment.attributes
    lines = [
        f"You are the orchestrator of the node {assignment.node} of the pipeline {assignment.pipeline or '(none)'}."
    ]
    if assignment.label and assignment.label != assignment.node:
        lines.append(f"What it is for: {assignment.label}")
    lines += ["", "Get this node done, and nothing else:", ""]
    lines += [f"- {words}: {told[name]}" for name, words in TOLD.items() if told.get(name)]
    lines += [f"- {name}: {value}" for name, value in told.items() if value and name not in TOLD and name not in _OURS]
    if assignment.forbid:
        names = ", ".join(assignment.forbid)
        lines += ["", f"Do not use these tools yourself: {names}. Let workers (sub-agents) do that work."]
    lines += [
        "",
        "Read what is named above first. Run the tests that matter. Commit your work when it is done.",
        "If you need a decision, ask for it and wait. When all is done, say in one paragraph what you did.",
    ]
    if not tells:
        lines.append(programs.ENDING)
    if assignment.feedback:
        lines += [
            "",
            f"This is attempt {assignment.attempt}. What was wrong with the one before:",
            "",
            assignment.feedback,
        ]
    return "\n".join(lines) + "\n"


def plain(assignment: Assignment) -> dict[str, Any]:
    names: tuple[str, ...] = assignment.__light__  # type: ignore[attr-defined]
    found = {name: getattr(assignment, name) for name in names}
    return found | {"attributes": dict(assignment.attributes), "forbid": list(assignment.forbid)}


def parsed(value: Mapping[str, Any]) -> Assignment:
    known = {name: value[name] for name in plain(Assignment("", "")) if name in value}
    return replace(Assignment(**known), forbid=tuple(known.get("forbid", ())))


def _seconds(text: str, default: float) -> float:
    from doflow.flow.parsing import syntax as notation

    try:
        return notation.seconds(text) if text else default
    except notation.Bad:
        return default
