"""Other tools' attributes: their names for ours, `$goal`, the model stylesheet, models to profiles, and what isn't known. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from doflow.flow.dot.model import CODERGEN, Node, Pipeline
from doflow.flow.model import Profile

#: our name for an attribute, and other tools' names for it
_NAMES = {
    "prompt": ("llm_prompt",),
    "command": ("tool_command", "script"),
    "solution_design": ("sd_path",),
}
_MODEL_NAMES = ("llm_model", "llm_provider", "reasoning_effort")
#: other names in a stylesheet
_STYLE_NAMES = {"model": "llm_model", "provider": "llm_provider"}
#: providers, and the agents that call them
_AGENTS = {
    "anthropic": ("claude",), "claude": ("claude",), "openai": ("codex",), "google": ("gemini",), "gemini": ("gemini",),
}  # fmt: skip
_GOAL = re.compile(r"\$goal\b|\$\{goal\}")
#: a prompt that is in a file beside the pipeline
_PROMPT_FILE = re.compile(r"@([^\s@]+\.\w+)")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def normalize(pipeline: Pipeline) -> Pipeline:
    """With our names for other tools' attributes, `$goal` filled in, and the models of the stylesheet."""
    rules = parse_stylesheet(pipeline.get("model_stylesheet"))
    goal = pipeline.get("goal")
    folder = os.path.dirname(pipeline.path)
    nodes = tuple(_normalized(node, goal, rules, folder) for node in pipeline.nodes)
    return replace(pipeline, nodes=nodes) if nodes != pipeline.nodes else pipeline


def _normalized(node: Node, goal: str, rules: Sequence[tuple[str, Mapping[str, str]]], folder: str) -> Node:
    values = dict(node.attributes)
    for name, others in _NAMES.items():
        found = values.get(name) or next((values[other] for other in others if values.get(other)), "")
        if found:
            values[name] = found
    if file := _PROMPT_FILE.fullmatch(values.get("prompt", "").strip()):
        path = os.path.normpath(os.path.join(folder, file[1]))
        values["prompt"] = f"Read the file `{path}` and do what it says."
    if "prompt" in values and _GOAL.search(values["prompt"]):
        values["prompt"] = _GOAL.sub(lambda _: goal if goal and not _GOAL.search(goal) else "{goal}", values["prompt"])
    if rules and node.handler == CODERGEN:
        for name, value in _style(node, rules).items():
            values.setdefault(name, value)
    return replace(node, attributes=tuple(values.items())) if values != dict(node.attributes) else node


def parse_stylesheet(text: str) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """Selectors and their values, as written: `* { llm_model: m; } .hard { … } #review { … }`."""
    found = []
    for selectors, body in _RULE.findall(_COMMENT.sub("", text)):
        pairs = (line.partition(":") for line in body.split(";"))
        values = {name.strip(): value.strip().strip("'\"") for name, _, value in pairs if value.strip()}
        found += [(selector.strip(), values) for selector in selectors.split(",") if selector.strip()]
    return tuple(found)


def _style(node: Node, rules: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """The values of a node: an id wins over a class, a class over a shape, a shape over `*`; of equals the last."""
    classes = {word for word in re.split(r"[\s,]+", node.get("class")) if word}
    ranks: dict[str, tuple[int, str]] = {}
    for selector, values in rules:
        if selector.startswith("#"):
            rank = 3 if selector[1:] == node.id else -1
        elif selector.startswith("."):
            rank = 2 if selector[1:] in classes else -1
        else:
            rank = 0 if selector == "*" else 1 if selector == (node.shape or "box") else -1
        for said, value in values.items() if rank >= 0 else ():
            name = _STYLE_NAMES.get(said, said)
            if name in _MODEL_NAMES and rank >= ranks.get(name, (0, ""))[0]:
                ranks[name] = (rank, value)
    return {name: value for name, (_, value) in ranks.items()}


def agent_and_model(node: Node, profiles: Sequence[Profile]) -> tuple[str, str, str]:
    """The profile and the model of a node; the third is what no profile is for ('' = nothing is missing).

    By `agent` and `model` as they are; else a profile with the model, else one whose agent calls the provider."""
    agent, model = node.get("agent"), node.get("model")
    wanted, provider = node.get("llm_model"), node.get("llm_provider").lower()
    tool, named = node.get("agent_tool").lower(), node.get("llm_profile")
    if agent or model or not (wanted or provider or tool or named):
        return agent, model, ""
    by_model = next((one.name for one in profiles if wanted and one.model == wanted), "")
    if by_model or any(one.name == named for one in profiles):
        return by_model or named, "", ""
    programs = (tool, provider, *_AGENTS.get(provider, ()))
    by_program = next((one.name for one in profiles for word in programs if word and word in (one.name, one.use)), "")
    if by_program and (wanted or tool):
        return by_program, wanted, ""
    return "", "", wanted or named or tool or provider


#: attributes that doflow uses, or that are only about the file
_KNOWN = frozenset({
    "acceptance", "agent", "agent_tool", "bead_id", "check", "class", "command", "condition", "fallback_retry_target", "forbid",
    "gate", "goal", "goal_gate", "handler", "judge", "label", "llm_model", "llm_profile", "llm_prompt", "llm_provider", "max_retries",
    "max_visits", "max_node_visits", "default_max_retry", "default_max_retries", "mode", "model", "model_stylesheet", "node_type",
    "output_style", "prd_ref", "prd_section", "promise_ac", "promise_id", "prompt", "question", "retry_count", "retry_target",
    "reviewer", "script", "sd_path", "solution_design", "status", "stuck", "target_dir", "timeout", "tool_command", "type",
    "validate", "weight", "worker_type", "working_dir", "worktree", "writes", "shape",
    # about the file, or its tool's own notes: nothing to do
    "description", "epic_id", "pipeline_id", "gate_type", "is_codergen", "last_failure", "comment", "title", "version",
})  # fmt: skip
#: attributes of Graphviz that only affect the drawing
_DRAWN = frozenset({
    "arrowhead", "arrowsize", "arrowtail", "bgcolor", "center", "charset", "cluster", "clusterrank", "color", "colorscheme",
    "compound", "concentrate", "constraint", "decorate", "dir", "dpi", "fillcolor", "fixedsize", "fontcolor", "fontname",
    "fontnames", "fontsize", "forcelabels", "gradientangle", "group", "headlabel", "headport", "height", "href", "id", "image",
    "imagescale", "labelangle", "labeldistance", "labelfloat", "labelfontcolor", "labelfontname", "labelfontsize", "labeljust",
    "labelloc", "layout", "lhead", "ltail", "margin", "minlen", "newrank", "nodesep", "nojustify", "ordering", "orientation",
    "outputorder", "overlap", "pack", "packmode", "pad", "page", "pagedir", "pencolor", "penwidth", "peripheries", "pin", "pos",
    "quantum", "rank", "rankdir", "ranksep", "ratio", "regular", "remincross", "resolution", "root", "rotate", "samehead",
    "sametail", "samplepoints", "sep", "sides", "size", "skew", "splines", "style", "tailclip", "taillabel", "tailport", "target",
    "tooltip", "truecolor", "URL", "url", "viewport", "width", "xlabel", "xlp", "z", "bb", "lp", "lwidth", "lheight", "headclip",
    "edgetooltip", "labeltooltip", "headtooltip", "tailtooltip", "shapefile", "vertices", "rects", "searchsize", "showboxes",
})  # fmt: skip


def unknown_attributes(pipeline: Pipeline) -> dict[str, int]:
    """The attributes that doflow does nothing with, each with the line where it is first."""
    found: dict[str, int] = {}
    for name, _ in pipeline.attributes:
        found.setdefault(name, pipeline.line)
    for node in pipeline.nodes:
        lines = {one.name: one.line for one in node.own}
        for name, _ in node.attributes:
            found.setdefault(name, lines.get(name, node.line))
    for edge in pipeline.edges:
        for name, _ in edge.attributes:
            found.setdefault(name, edge.line)
    return {name: line for name, line in found.items() if name not in _KNOWN and name not in _DRAWN}
