"""Validation of a node's work: by a command, by a reviewer other than the worker, or by a person; never by default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doflow.flow import findings
from doflow.flow.dot import compiler, validate
from doflow.flow.dot.model import (
    ACTIVE,
    CODERGEN,
    CONDITION,
    FAILED,
    GATE,
    TERMINAL,
    TOOL,
    VALIDATED,
    Node,
    Pipeline,
    label_text,
)
from doflow.supervise import judge
from doflow.supervise.guardian import state
from doflow.supervise.guardian.state import Guardian
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Timeout

LIMIT = Timeout(0.0, 1800.0)
TAIL, OUTPUT = 3000, 100_000
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
    kind = node.get("gate") or node.get("mode")
    reviewer = node.get("reviewer") or (node.get("agent") if node.handler == GATE else "")
    if not reviewer and node.handler == GATE and node.get("prompt") and kind not in _TECHNICAL:
        reviewer = "default"
    if reviewer:
        return Means(reviewer=reviewer)
    if node.handler == GATE and kind not in _TECHNICAL:
        return Means(auto=context.settings.auto_approve)
    supervision = context.settings.supervision
    return Means(supervision.validate, "" if supervision.validate else supervision.reviewer)


def refuse_invalid(pipeline: Pipeline, context: PipelineContext) -> None:
    """Refuse errors in the file, and workers that review themselves, before anything starts."""
    wrong = validate.errors(compiler.check_runnable(pipeline))
    if wrong:
        raise FlowError(tuple(Problem(pipeline.path, one.line, 1, one.message, one.hint) for one in wrong))
    for node in pipeline.nodes:
        found = validation_means(node, context)
        worker = orchestrator.agent_for(node, context.settings)
        if node.handler == CODERGEN and found.reviewer and found.reviewer == worker:
            message = f"{pipeline.path}:{node.line}: {node.id} would be reviewed by {worker}, its own worker"
            raise UsageError(message, "name another profile as `reviewer`")


def apply_verdict(guardian: Guardian, node: Node) -> bool:
    """A gate, a tool or a diamond: the verdict decides its status. False = not known yet."""
    attempt = int(guardian.record(node.id)["attempt"])
    found = verdict(guardian, node, attempt)
    if found is None:
        return False
    text = str(found.get("text", ""))
    guardian.keep(node.id, feedback=text)
    if found["passed"]:
        guardian.move(node.id, VALIDATED, f"by {found.get('by', '')}")
    elif _runs_again(guardian, node, attempt):
        guardian.keep(node.id, attempt=attempt + 1)
        guardian.say(f"{node.id}: attempt {attempt + 1}")
    else:
        guardian.move(node.id, FAILED, text)
    return True


def _runs_again(guardian: Guardian, node: Node, attempt: int) -> bool:
    """A tool with `max_retries` whose result decides nothing is tried again, as doit does it."""
    position = guardian.position
    tried = position is not None and node.handler == TOOL and not position.wanted.decides(node)
    return tried and bool(node.get("max_retries")) and state.retries_left(guardian, node, attempt)


def validate_earlier_work(guardian: Guardian, node: Node) -> bool:
    """Work that was complete before this guardian came is validated, not done again. False = not known yet."""
    if node.handler != CODERGEN or int(guardian.record(node.id)["attempt"]):
        return False  # its own runner reports it
    found = verdict(guardian, node, 0)
    if found is None:
        return False
    if found["passed"]:
        guardian.move(node.id, VALIDATED, f"by {found.get('by', '')}")
    else:
        guardian.keep(node.id, attempt=1, feedback=str(found["text"]) or "it was rejected", fresh=True)
        guardian.move(node.id, ACTIVE, str(found["text"]))
    return True


def token(node: str, attempt: int) -> str:
    """The name of a verdict."""
    return f"verdict.{node}.{attempt}"


def output(found: Mapping[str, Any]) -> str:
    """The output of a command, else the words of a verdict."""
    return runner.tail(str(found["log"]), OUTPUT) if found.get("log") else str(found.get("text", ""))


def verdict(guardian: Guardian, node: Node, attempt: int, evidence: str = "") -> dict[str, Any] | None:
    """`passed` and `text` for this attempt; None = not known yet. The first verdict counts, also after a crash."""
    name = token(node.id, attempt)
    found = guardian.settled(name)
    if found and found.get("passed") is not None:
        return found
    how = validation_means(node, guardian.context)
    if how.auto and not _labels(guardian, node):
        return guardian.settle(name, {"passed": True, "text": "auto_approve", "by": "settings"})
    if node.handler == CONDITION and not any(node.get(name) for name in (*_OWN[CONDITION], "reviewer")):
        return _before(guardian, node, name)
    if found or not (how.argv or how.reviewer):
        return _person(guardian, node, name, str(found.get("text", "")))
    found_now = guardian.result(name, lambda: _judged(guardian.context, node, how, attempt, evidence))
    return found_now if found_now and found_now.get("passed") is not None else None


def _before(guardian: Guardian, diamond: Node, name: str) -> dict[str, Any] | None:
    """A diamond without a check of its own follows the nodes before it."""
    pipeline = guardian.pipeline()
    before = [pipeline.node(edge.start) for edge in pipeline.into(diamond.id)]
    nodes = [node for node in before if node and node.status in TERMINAL]
    if not nodes:
        return _person(guardian, diamond, name, "")
    failed = [node.id for node in nodes if node.status == FAILED]
    text = "\n\n".join(str(guardian.record(name)["feedback"]) for name in failed)
    by = ", ".join(failed or [node.id for node in nodes])
    return guardian.settle(name, {"passed": not failed, "text": text, "by": by})


def _person(guardian: Guardian, node: Node, name: str, why: str) -> dict[str, Any] | None:
    what = "is a gate" if node.handler == GATE else "is done, and no command or reviewer is configured to validate it"
    issue = f"{node.id} ({node.label}) {what}. {node.get('question') or 'Is it right?'}"
    issue += f" The reviewer could not decide: {why[:500]}" if why else ""
    issue += f" Acceptance: {node.get('acceptance')}" if node.get("acceptance") else ""
    labels = _labels(guardian, node)
    answer = guardian.ask(name, node.id, issue, labels or state.VERDICT)
    if answer is None:
        return None
    word, note = state.match_option(answer, labels or state.VERDICT)
    found = {"passed": bool(labels) or word == "approve", "text": note or answer, "by": "person"}
    return guardian.settle(name, {**found, "label": word} if labels else found)


def _labels(guardian: Guardian, node: Node) -> tuple[str, ...]:
    """The labels between which a person chooses at a gate; () = approve or reject."""
    return guardian.position.wanted.labels(node) if guardian.position and node.handler == GATE else ()


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
    broken = bool(result.stopped) or result.code in (126, 127) or not 0 <= (result.code or 0) <= 128
    return {"passed": passed, "text": text, "by": shown, "log": log, "error": broken}


def _question(node: Node, evidence: str) -> str:
    named = ("prompt", *orchestrator.PROMPT_FIELDS)
    fields = "\n".join(f"- {name}: {label_text(node.get(name))}" for name in named if node.get(name))
    return (
        f"Review the work on the node {node.id} ({node.label}).\n\n{fields}\n\n"
        f"The worker's output is in the file {evidence or '(none)'}. Look at the files: does the work meet "
        "the acceptance criteria? You only judge: change nothing.\n\n"
        "Write each finding as a line `ISSUE: C | text | place` (C critical, H high, M medium, L low).\n"
        "End with one line: VERDICT: GO, VERDICT: CONDITIONAL or VERDICT: NO-GO.\n"
    )
