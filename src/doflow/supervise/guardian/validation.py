"""Validation of a node's work: by a command, by a reviewer other than the worker, or by a person; never by default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from doflow.flow import findings
from doflow.flow.dot import routing, validate
from doflow.flow.dot.model import CODERGEN, CONDITION, FAILED, GATE, TERMINAL, TOOL, Node, Pipeline
from doflow.supervise import judge
from doflow.supervise.guardian import state
from doflow.supervise.guardian.state import Guardian
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Timeout

LIMIT = Timeout(0.0, 1800.0)
TAIL = 3000
_COMMANDS = ("validate", "command")
_OWN = {CODERGEN: ("validate", "check"), GATE: _COMMANDS, CONDITION: _COMMANDS, TOOL: ("command",)}
#: kinds of nodes whose status is their verdict
JUDGED = (GATE, TOOL, CONDITION)
_TECHNICAL = ("technical", "e2e", "test", "automatic")


@dataclass(frozen=True, slots=True)
class Means:
    """How a node is validated: a command, a reviewer, or (both empty) a person."""

    argv: tuple[str, ...] = ()
    reviewer: str = ""
    auto: bool = False


def validation_means(node: Node, context: PipelineContext) -> Means:
    """From the node; else, for work and technical gates, from the settings; else a person."""
    own = next((node.get(name) for name in _OWN.get(node.handler, ()) if node.get(name)), "")
    if own:
        return Means(("/bin/sh", "-c", own))
    reviewer = node.get("reviewer") or (node.get("agent") if node.handler == GATE else "")
    if reviewer:
        return Means(reviewer=reviewer)
    kind = node.get("gate") or node.get("mode")
    if node.handler == GATE and kind not in _TECHNICAL:
        return Means(auto=context.settings.auto_approve)
    supervision = context.settings.supervision
    return Means(supervision.validate, "" if supervision.validate else supervision.reviewer)


def refuse_invalid(pipeline: Pipeline, context: PipelineContext) -> None:
    """Refuse errors in the file, and workers that review themselves, before anything starts."""
    wrong = validate.errors(validate.check_pipeline(pipeline))
    if wrong:
        raise FlowError(tuple(Problem(pipeline.path, one.line, 1, one.message, one.hint) for one in wrong))
    if routing.is_walked(pipeline):
        message = (
            f"{pipeline.path}: a guardian cannot follow conditions at nodes other than diamonds, or loops over them"
        )
        raise UsageError(message, f"add it to `pipelines:` in doflow.yaml, then: doit {context.pipeline}")
    for node in pipeline.nodes:
        found = validation_means(node, context)
        worker = orchestrator.agent_for(node, context.settings)
        if node.handler == CODERGEN and found.reviewer and found.reviewer == worker:
            message = f"{pipeline.path}:{node.line}: {node.id} would be reviewed by {worker}, its own worker"
            raise UsageError(message, "name another profile as `reviewer`")


def verdict(guardian: Guardian, node: Node, attempt: int, evidence: str = "") -> dict[str, Any] | None:
    """`passed` and `text` for this attempt; None = not known yet. The first verdict counts, also after a crash."""
    token = f"verdict.{node.id}.{attempt}"
    found = guardian.settled(token)
    if found and found.get("passed") is not None:
        return found
    how = validation_means(node, guardian.context)
    if how.auto:
        return guardian.settle(token, {"passed": True, "text": "auto_approve", "by": "settings"})
    if node.handler == CONDITION and not any(node.get(name) for name in (*_OWN[CONDITION], "reviewer")):
        return _before(guardian, node, token)
    if found or not (how.argv or how.reviewer):
        return _person(guardian, node, token, str(found.get("text", "")))
    found_now = guardian.result(token, lambda: _judged(guardian.context, node, how, attempt, evidence))
    return found_now if found_now and found_now.get("passed") is not None else None


def _before(guardian: Guardian, diamond: Node, token: str) -> dict[str, Any] | None:
    """A diamond without a check of its own follows the nodes before it."""
    pipeline = guardian.pipeline()
    before = [pipeline.node(edge.start) for edge in pipeline.into(diamond.id)]
    nodes = [node for node in before if node and node.status in TERMINAL]
    if not nodes:
        return _person(guardian, diamond, token, "")
    failed = [node.id for node in nodes if node.status == FAILED]
    text = "\n\n".join(str(guardian.record(name)["feedback"]) for name in failed)
    by = ", ".join(failed or [node.id for node in nodes])
    return guardian.settle(token, {"passed": not failed, "text": text, "by": by})


def _person(guardian: Guardian, node: Node, token: str, why: str) -> dict[str, Any] | None:
    what = "is a gate" if node.handler == GATE else "is done, and no command or reviewer is configured to validate it"
    issue = f"{node.id} ({node.label}) {what}. {node.get('question') or 'Is it right?'}"
    issue += f" The reviewer could not decide: {why[:500]}" if why else ""
    issue += f" Acceptance: {node.get('acceptance')}" if node.get("acceptance") else ""
    answer = guardian.ask(token, node.id, issue, state.VERDICT)
    if answer is None:
        return None
    word, note = state.match_option(answer, state.VERDICT)
    return guardian.settle(token, {"passed": word == "approve", "text": note or answer, "by": "person"})


def _judged(context: PipelineContext, node: Node, how: Means, attempt: int, evidence: str) -> dict[str, Any]:
    if how.argv:
        return _command(context, node, how.argv, attempt, evidence)
    answer = findings.parse_answer(how.reviewer, judge.ask_agent(
        context, how.reviewer, node.id, f"{node.id}.{attempt}", _question(node, evidence), "reviewer",
    ))  # fmt: skip
    issues = "\n".join(f"- {issue.severity}: {issue.text} {issue.place}".rstrip() for issue in answer.issues)
    passed = None if answer.lack else answer.verdict == "GO"
    text = "\n".join(filter(None, (answer.lack.rstrip(",") if answer.unread or answer.disagreeing else "", issues)))
    return {"passed": passed, "text": text or answer.verdict or "no verdict", "by": how.reviewer}


def _command(
    context: PipelineContext, node: Node, argv: tuple[str, ...], attempt: int, evidence: str
) -> dict[str, Any]:
    log = context.node(node.id, f"validation-{attempt}.log")
    if os.path.exists(log):
        os.unlink(log)
    extra = {
        "DOFLOW_NODE": node.id, "DOFLOW_PIPELINE": context.pipeline, "DOFLOW_ATTEMPT": str(attempt),
        "DOFLOW_EVIDENCE": evidence,
    }  # fmt: skip
    folder = node.get("worktree") or node.get("target_dir") or node.get("working_dir")
    cwd = os.path.normpath(os.path.join(context.root, folder))
    result = runner.run(Command(argv, b"", environment.for_shell(os.environ, extra), cwd), log, log, LIMIT)
    why = runner.explain(result, argv, LIMIT)
    passed = result.code == 0 and not result.stopped
    shown = argv[2] if argv[:2] == ("/bin/sh", "-c") else " ".join(argv)
    text = "" if passed else f"{shown}: {why}\n\n{runner.tail(log, TAIL).strip()}".strip()
    return {"passed": passed, "text": text, "by": shown, "log": log}


def _question(node: Node, evidence: str) -> str:
    fields = "\n".join(f"- {name}: {node.get(name)}" for name in orchestrator.PROMPT_FIELDS if node.get(name))
    return (
        f"Review the work on the node {node.id} ({node.label}).\n\n{fields}\n\n"
        f"The worker's output is in the file {evidence or '(none)'}. Look at the files: does the work meet "
        "the acceptance criteria? You only judge: change nothing.\n\n"
        "Write each finding as a line `ISSUE: C | text | place` (C critical, H high, M medium, L low).\n"
        "End with one line: VERDICT: GO, VERDICT: CONDITIONAL or VERDICT: NO-GO.\n"
    )
