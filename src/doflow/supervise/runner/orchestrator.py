"""The orchestrator of a node: its assignment, prompt, worktree and pane; and checks whether a node can run in a pane."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from doflow.flow import plan
from doflow.flow.dot import dialect
from doflow.flow.dot.model import CODERGEN, Node, Pipeline, label_text
from doflow.flow.dot.validate import NOTE, WARNING, Diagnostic
from doflow.flow.model import Profile, Settings, Step
from doflow.flow.parsing import schema, syntax
from doflow.git import head_reader
from doflow.git.repository import Repository
from doflow.supervise import pipeline_context
from doflow.supervise.panes import agent_pane, programs, tmux
from doflow.supervise.panes.agent_pane import AgentPane
from doflow.supervise.panes.programs import PaneRequest
from doflow.supervise.pipeline_context import PipelineContext
from doflow.util.errors import DoflowError, UsageError


def pane_at(context: PipelineContext, node: str, number: int) -> AgentPane:
    """The n-th pane of a node, whether it is running or not."""
    return AgentPane(context.tmux, tmux.session_name(node), context.node(node, "seats", str(number)))


def spawn(context: PipelineContext, assignment: Assignment, number: int, environ: Mapping[str, str]) -> AgentPane:
    """Start the orchestrator of a node in its session."""
    _refuse_foreign(context, assignment.node)
    _worktree(context, assignment)
    profile = pipeline_context.find_profile(context.settings, assignment.agent, f"the node {assignment.node}")
    found = pane_at(context, assignment.node, number)
    name, text = load_style(assignment.style, context.root, environ)
    variables = {
        "DOFLOW_PIPELINE": context.pipeline, "DOFLOW_NODE": assignment.node, "DOFLOW_STEP": assignment.node,
        "DOFLOW_ATTEMPT": str(assignment.attempt), "DOFLOW_ROLE": "orchestrator", "DOFLOW_SIGNALS": context.base,
    }  # fmt: skip
    request = PaneRequest(
        profile, build_prompt(assignment, programs.has_stop_hook(profile.use)), found.folder, context.root,
        assignment.cwd, assignment.model, name, text, variables=variables,
    )  # fmt: skip
    marks = {"node": assignment.node, "pipeline": context.pipeline, "attempt": str(assignment.attempt)}
    agent_pane.start_pane(found, programs.build_program(request, environ), marks)
    context.note(
        "runner", "orchestrator_spawned", node=assignment.node, session=found.session, attempt=assignment.attempt,
        seat=number, attach=context.tmux.attach(found.session),
    )  # fmt: skip
    return found


def load_style(name: str, root: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Name and text of an output style: the project's or user's by name, else the packaged text; ('', '') = none."""
    if not name:
        return "", ""
    homes = (root, environ.get("HOME", ""))
    if any(home and os.path.isfile(os.path.join(home, ".claude", "output-styles", f"{name}.md")) for home in homes):
        return name, ""
    path = schema.data_folder("flows") / "styles" / f"{os.path.basename(name)}.md"
    if path.is_file():
        return name, path.read_text("utf-8")
    hint = f"create .claude/output-styles/{name}.md, or choose another: `supervision.style` in doflow.yaml"
    raise UsageError(f"unknown output style {name!r}", hint)


def _refuse_foreign(context: PipelineContext, node: str) -> None:
    """Refuse a session that belongs to another node: `impl_auth` and `impl-auth` would share one."""
    session = tmux.session_name(node)
    owner = context.tmux.mark(session, "node") if context.tmux.exists(session) else ""
    if owner and owner != node:
        raise UsageError(f"the session {session} belongs to the node {owner}", f"rename {node}")


def _worktree(context: PipelineContext, assignment: Assignment) -> None:
    """Make sure the folder exists; a missing `worktree` is created on a branch for the node."""
    if os.path.isdir(assignment.cwd):
        return
    if not assignment.attributes.get("worktree"):
        message = f"the folder of node {assignment.node} does not exist: {assignment.cwd}"
        raise UsageError(message, "create it, or fix `target_dir`")
    branch = f"node/{assignment.node}"
    git = Repository(head_reader.find_head(context.root))
    known = git.call("rev-parse", "--verify", "-q", f"refs/heads/{branch}")[0] == 0
    git.run("worktree", "add", *(() if known else ("-b", branch)), assignment.cwd, *((branch,) if known else ()))


def head_commit(folder: str) -> str:
    """The checked-out commit of a folder; '' = none."""
    try:
        return str(head_reader.find_head(folder).commit)
    except (DoflowError, OSError):
        return ""


#: attributes in the prompt, in this order
PROMPT_FIELDS = {
    "prd_ref": "PRD", "prd_section": "Section of the PRD", "solution_design": "Solution design",
    "acceptance": "Acceptance criteria", "target_dir": "Work in the folder", "bead_id": "Bead",
    "worker_type": "Let this kind of worker do it", "promise_ac": "Promised criterion",
}  # fmt: skip
#: attributes for drawing or for doflow, not in the prompt
_OURS = frozenset({
    "label", "shape", "status", "style", "fillcolor", "color", "fontcolor", "fontname", "fontsize", "handler", "pos",
    "width", "height", "penwidth", "tooltip", "xlabel", "margin", "peripheries", "retry_count", "max_retries", "validate",
    "check", "reviewer", "judge", "agent", "model", "forbid", "question", "writes", "timeout", "working_dir", "gate", "mode",
    "output_style", "worktree", "stuck", "command", "tool_command", "script", "type", "node_type", "class", "llm_prompt",
    "llm_model", "llm_provider", "llm_profile", "agent_tool", "reasoning_effort", "goal_gate", "retry_target",
    "fallback_retry_target", "max_visits", "sd_path", "fidelity", "thread_id",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at one node. `fresh` = in a new session; otherwise a running one gets the feedback.
    `before`: results of earlier nodes; `ending`: how its report must end."""

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
    before: str = ""
    ending: str = ""
    fresh: bool = True


def assignment_for(node: Node, pipeline: Pipeline, name: str, root: str, settings: Settings) -> Assignment:
    """The assignment from a node's attributes; the graph's `prd_ref` is the default."""
    attributes = {key: value for key, value in node.attributes if value}
    attributes.setdefault("prd_ref", pipeline.get("prd_ref"))
    if "prompt" in attributes:
        goal = pipeline.get("goal") or label_text(pipeline.get("label")) or pipeline.name
        attributes["prompt"] = label_text(attributes["prompt"]).replace("{goal}", goal)
    forbid = [word.strip() for word in attributes.get("forbid", "").split(",") if word.strip()]
    return Assignment(
        node.id, name, node.label, attributes, agent_for(node, settings), dialect.agent_and_model(node, settings.agents)[1],
        work_folder(root, attributes), attributes.get("output_style", settings.supervision.style), tuple(forbid),
        _seconds(attributes.get("stuck", ""), settings.supervision.stuck),
        attributes.get("judge", settings.supervision.judge),
    )  # fmt: skip


def work_folder(root: str, attributes: Mapping[str, str]) -> str:
    return os.path.normpath(os.path.join(root, attributes.get("worktree") or attributes.get("target_dir", "")))


def agent_for(node: Node, settings: Settings) -> str:
    """The agent of a node: from `route_agents` by its ID, else its `agent`, else from `route_agents` by its worker type."""
    worker = node.get("worker_type")
    by_worker = plan.routed_profile(worker, settings) if worker else ""
    named = dialect.agent_and_model(node, settings.agents)[0]
    return plan.routed_profile(node.id, settings) or named or by_worker or "default"


def build_prompt(assignment: Assignment, tells: bool) -> str:
    """The prompt of the orchestrator. `tells` = its hooks report the end of a turn."""
    attributes, pipeline = assignment.attributes, assignment.pipeline or "(none)"
    lines = [f"You are the orchestrator of the node {assignment.node} of the pipeline {pipeline}."]
    if assignment.label and assignment.label != assignment.node:
        lines.append(f"Its purpose: {assignment.label}")
    lines += ["", "Complete this node, and nothing else:", ""]
    lines += [f"- {words}: {attributes[name]}" for name, words in PROMPT_FIELDS.items() if attributes.get(name)]
    others = [name for name, value in attributes.items() if value and name not in _OURS.union(PROMPT_FIELDS)]
    lines += [f"- {name}: {attributes[name]}" for name in others]
    if assignment.forbid:
        names = ", ".join(assignment.forbid)
        lines += ["", f"Do not use these tools yourself: {names}. Let workers (sub-agents) do that work."]
    lines += [
        "",
        "Read the documents above first. Run the relevant tests. Commit your work when it is done.",
        "If you need a decision, ask for it and wait. When everything is done, summarize your work in one paragraph.",
    ]
    if assignment.before:
        lines += ["", "The results of what came before:", "", assignment.before, ""]
    if assignment.ending:
        lines.append(assignment.ending)
    if not tells:
        lines.append(programs.ENDING)
    if assignment.feedback:
        heading = f"This is attempt {assignment.attempt}. Feedback on the previous one:"
        lines += ["", heading, "", assignment.feedback]
    return "\n".join(lines) + "\n"


def assignment_to_dict(assignment: Assignment) -> dict[str, Any]:
    values = {field.name: getattr(assignment, field.name) for field in fields(assignment)}
    return values | {"attributes": dict(assignment.attributes), "forbid": list(assignment.forbid)}


def assignment_from_dict(value: Mapping[str, Any]) -> Assignment:
    known = {name: value[name] for name in assignment_to_dict(Assignment("", "")) if name in value}
    return replace(Assignment(**known), forbid=tuple(known.get("forbid", ())))


def _seconds(text: str, default: float) -> float:
    try:
        return syntax.seconds(text) if text else default
    except syntax.InvalidSyntax:
        return default


def find_problems(
    pipeline: Pipeline, settings: Settings, root: str, environ: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Why nodes can't run under a guardian. A warning is an error without one, too; a note concerns only the guardian."""
    sessions: dict[str, str] = {}
    for node in pipeline.nodes:
        if node.get("reviewer"):
            yield from _tried(node, WARNING, _reads, settings, node.get("reviewer"), f"the reviewer of {node.id}")
        if node.handler == CODERGEN:
            yield from _worked_on(node, assignment_for(node, pipeline, "", root, settings), settings, environ, root)
            session = tmux.session_name(node.id)
            if sessions.setdefault(session, node.id) != node.id:
                message = f"{node.id} and {sessions[session]} would share the session {session}"
                yield Diagnostic(NOTE, "agent", node.line, node.id, message, f"rename {node.id}")


def _worked_on(
    node: Node, work: Assignment, settings: Settings, environ: Mapping[str, str], root: str
) -> Iterator[Diagnostic]:
    missing = list(_tried(node, WARNING, pipeline_context.find_profile, settings, work.agent, node.id))
    yield from missing or _tried(
        node, NOTE, programs.refuse_unsupported, pipeline_context.find_profile(settings, work.agent, node.id)
    )
    if work.judge:
        yield from _tried(node, WARNING, _reads, settings, work.judge, f"the judge of {node.id}")
    yield from _tried(node, WARNING, load_style, work.style, root, environ)


def refuse_step(step: Step, profile: Profile, settings: Settings) -> None:
    """Refuse settings that a step with `via: tmux` or `judge` doesn't support."""
    at = f"{step.origin.file}:{step.origin.line}"
    if step.judge and step.via != "tmux":
        message = f"step {step.id} has a `judge`, which needs `via: tmux`"
        raise UsageError(message, f"{at}: add `via: tmux`, or remove `judge`")
    if step.via != "tmux":
        return
    if step.machine:
        message = f"step {step.id} has a `machine`, which is not enforced in a pane"
        raise UsageError(message, f"{at}: remove `machine` or `via: tmux`")
    if step.judge:
        pipeline_context.find_profile(settings, step.judge, f"`judge` of step {step.id}")
    programs.refuse_unsupported(profile)
    if profile.use in ("codex", "gemini", "opencode") and (step.from_text or step.routes):
        message = f"step {step.id} needs the final message of {profile.use}, which a pane doesn't provide"
        raise UsageError(message, "run it headless, or use claude for it")


def _reads(settings: Settings, name: str, who: str) -> None:
    """Check a judge or reviewer: a known profile without a sandbox."""
    if pipeline_context.find_profile(settings, name, who).sandbox:
        message = f"{who} is the agent {name}, which has a sandbox; read-only agents run without one"
        raise UsageError(message, f"use a profile without `sandbox`: agents.{name} without that line")


def _tried(node: Node, level: str, look: Callable[..., object], *given: object) -> Iterator[Diagnostic]:
    try:
        look(*given)
    except DoflowError as error:
        message = error.message if node.id in error.message else f"{node.id}: {error.message}"
        yield Diagnostic(level, "agent", node.line, node.id, message, error.hint)
