"""What the steps of a pipeline share: prompts, results, shell scripts, time limits, paths, commands in their folders."""

from __future__ import annotations

import shlex
from dataclasses import replace

from doflow.flow.dot.model import Node, Pipeline, attribute_value, label_text
from doflow.flow.parsing import syntax
from doflow.util.errors import FlowError, Problem
from doflow.util.process.runner import Timeout

PASS, FAIL = "RESULT: pass", "RESULT: fail"
#: these are part of a step's key: another text would run the steps of existing pipelines again
MUST = 'case "$(tail -n 1 "$1")" in "RESULT: pass") ;; *) tail -n 40 "$1"; exit 1;; esac'
TRY = """\
sh -c "$1" >"$2" 2>&1
code=$?
tail -c 20000 "$2"
case $code in
  0) result=pass;;
  126|127) echo "the command cannot be run" >&2; exit $code;;
  *) [ "$code" -le 128 ] || exit "$code"; result=fail;;
esac
kept=$(tail -c 100000 "$2")
printf '%s\\n\\nRESULT: %s\\n' "$kept" "$result" >"$2"
"""


def result_path(step: str) -> str:
    """The result file of a step, in the run's folder."""
    return f"results/{step}.md"


def problem(pipeline: Pipeline, line: int, message: str, hint: str) -> FlowError:
    return FlowError((Problem(pipeline.path, line, 1, message, hint),))


def step_timeout(pipeline: Pipeline, node: Node) -> Timeout | None:
    said = node.get("timeout")
    if not said:
        return None
    try:
        if said.endswith("ms") and said[:-2].isdecimal():
            return replace(Timeout(), max=max(1.0, int(said[:-2]) / 1000))
        if said.endswith("d") and said[:-1].isdecimal():
            return replace(Timeout(), max=int(said[:-1]) * 86400.0)
        return replace(Timeout(), max=syntax.seconds(float(said) if said.isdecimal() else said))
    except syntax.InvalidSyntax as bad:
        raise problem(pipeline, node.line, bad.message, bad.hint) from bad


def checked_path(pipeline: Pipeline, node: Node, said: str) -> str:
    try:
        return syntax.pattern(said.rstrip("/") or said)
    except syntax.InvalidSyntax as bad:
        raise problem(pipeline, node.line, f"{node.id}: {bad.message}", bad.hint) from bad


def command_text(pipeline: Pipeline, node: Node) -> str:
    """The command of a node, in its folder."""
    folder = node.get("working_dir") or node.get("target_dir")
    if not folder:
        return node.command
    return f"cd {shlex.quote(checked_path(pipeline, node, folder))} && {{ {node.command}\n}}"


def written_paths(pipeline: Pipeline, node: Node) -> tuple[str, ...]:
    """What its agent may change: `writes`, else everything that isn't protected."""
    paths = [path.strip() for path in node.get("writes").split(",") if path.strip()]
    return tuple(checked_path(pipeline, node, path) for path in paths) or ("**",)


def gate_question(node: Node, about: str) -> str:
    question = label_text(node.get("question")) or about
    return question if question.endswith("?") else f"{question}?"


#: a step's key holds its prompt: other words would run the steps of existing pipelines again
_LINES = (
    ("prd_ref", "The requirements are in", ""),
    ("prd_section", "The section that concerns you:", ""),
    ("solution_design", "The solution design, which you read first:", "`"),
    ("target_dir", "Work in the folder", "`"),
    ("bead_id", "The issue that this belongs to:", ""),
    ("worker_type", "You work as:", ""),
)


def prompt_text(pipeline: Pipeline, node: Node) -> str:
    """The prompt of a worker: the task, its documents, and the acceptance criteria."""
    lines = [f"# {node.label}", ""]
    if node.get("prompt"):
        lines += [label_text(node.get("prompt")), ""]
    for name, words, quote in _LINES:
        said = attribute_value(pipeline, node, name)
        lines += [f"- {words} {quote}{said}{quote}"] if said else []
    acceptance = label_text(node.get("acceptance"))
    if acceptance:
        lines += ["", "## It is accepted when", "", acceptance]
    return "\n".join(lines).rstrip() + "\n"


def review_text(pipeline: Pipeline, node: Node, judged: tuple[Node, ...]) -> str:
    """The prompt of a reviewer: the reviewed assignments and the acceptance criteria."""
    lines = [f"# {node.label}", ""]
    lines += [label_text(node.get("prompt")), ""] if node.get("prompt") else []
    lines += ["Look at the work and decide whether it is accepted. Change nothing.", ""]
    for one in judged:
        lines += [f"## The assignment of {one.id}", "", prompt_text(pipeline, one)]
    if node.get("acceptance"):
        lines += ["## It is accepted when", "", label_text(node.get("acceptance"))]
    return "\n".join(lines).rstrip() + "\n"
