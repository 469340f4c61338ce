"""Is a node's work right? A command, a reviewer who is not the worker, or a person says so; nobody's silence does."""

from __future__ import annotations

import os
from typing import Any

from doflow import environment, findings, process
from doflow.dot.model import CONDITION, GATE, TOOL, Node, Pipeline
from doflow.errors import UsageError
from doflow.light import dataclass
from doflow.model import Command, Timeout
from doflow.supervise import assignment, judging
from doflow.supervise.place import Place
from doflow.supervise.shift import Shift

LIMIT = Timeout(0.0, 1800.0)
TAIL = 3000
YES = ("approve", "approved", "yes", "y", "ok", "go", "1")
_TECHNICAL = ("technical", "e2e", "test", "automatic")


@dataclass(frozen=True, slots=True)
class Means:
    """How a node is validated: a command, a reviewer, or (both empty) a person."""

    argv: tuple[str, ...] = ()
    reviewer: str = ""
    auto: bool = False


def means(node: Node, place: Place) -> Means:
    """What the node says; else, for work and technical gates, what the settings say; else a person."""
    own = (
        node.get("command")
        if node.handler == TOOL
        else node.get("validate") or (node.get("command") if node.handler == CONDITION else "")
    )
    if own:
        return Means(("/bin/sh", "-c", own))
    if node.get("reviewer"):
        return Means(reviewer=node.get("reviewer"))
    kind = node.get("gate") or node.get("mode")
    if node.handler == TOOL or (node.handler == GATE and kind not in _TECHNICAL):
        return Means(auto=place.settings.auto_approve and node.handler == GATE)
    said = place.settings.supervision
    return Means(said.validate, "" if said.validate else said.reviewer)


def refuse(pipeline: Pipeline, place: Place) -> None:
    """A worker that reviews itself is refused before anything begins."""
    for node in pipeline.nodes:
        found = means(node, place)
        worker = assignment.agent_of(node, place.settings)
        if node.handler == "codergen" and found.reviewer and found.reviewer == worker:
            raise UsageError(
                f"{pipeline.path}:{node.line}: {node.id} would be reviewed by {worker}, which does it",
                "name another profile as `reviewer`",
            )
        if node.handler == TOOL and not found.argv:
            raise UsageError(f"{pipeline.path}:{node.line}: {node.id} is a tool without a `command`", 'add command="…"')


def verdict(shift: Shift, node: Node, attempt: int, evidence: str = "") -> dict[str, Any] | None:
    """`passed` and `text` for this attempt; None = it is not known yet. The first verdict counts, also after a crash."""
    token = f"verdict.{node.id}.{attempt}"
    found = shift.settled(token)
    if found and found.get("passed") is not None:
        return found
    how = means(node, shift.place)
    if how.auto:
        return shift.settle(token, {"passed": True, "text": "auto_approve", "by": "settings"})
    if found or not (how.argv or how.reviewer):
        return _person(shift, node, token, str(found.get("text", "")))
    found_now = shift.result(token, lambda: _judged(shift.place, node, how, attempt, evidence))
    return found_now if found_now and found_now.get("passed") is not None else None


def _person(shift: Shift, node: Node, token: str, why: str) -> dict[str, Any] | None:
    what = "is a gate" if node.handler == GATE else "is done, and nothing is named that could validate it"
    issue = f"{node.id} ({node.label}) {what}. Is it right?" + (
        f" A reviewer could not tell: {why[:500]}" if why else ""
    )
    if node.get("acceptance"):
        issue += f" Acceptance: {node.get('acceptance')}"
    said = shift.ask(token, node.id, issue, ("approve", "reject"))
    if said is None:
        return None
    passed = said.strip().casefold() in YES
    return shift.settle(token, {"passed": passed, "text": said, "by": "person"})


def _judged(place: Place, node: Node, how: Means, attempt: int, evidence: str) -> dict[str, Any]:
    if how.argv:
        return _command(place, node, how.argv, attempt, evidence)
    answer = findings.read(how.reviewer, judging.said(
        place, how.reviewer, node.id, f"{node.id}.{attempt}", _question(node, evidence), "reviewer",
    ))  # fmt: skip
    issues = "\n".join(f"- {issue.severity}: {issue.text} {issue.place}".rstrip() for issue in answer.issues)
    passed = {"GO": True, "CONDITIONAL": False, "NO-GO": False}.get(answer.verdict)
    return {"passed": passed, "text": issues or answer.verdict or "no verdict", "by": how.reviewer}


def _command(place: Place, node: Node, argv: tuple[str, ...], attempt: int, evidence: str) -> dict[str, Any]:
    log = place.node(node.id, f"validation-{attempt}.log")
    if os.path.exists(log):
        os.unlink(log)
    extra = {
        "DOFLOW_NODE": node.id, "DOFLOW_PIPELINE": place.pipeline, "DOFLOW_ATTEMPT": str(attempt),
        "DOFLOW_EVIDENCE": evidence,
    }  # fmt: skip
    cwd = os.path.normpath(os.path.join(place.root, node.get("worktree") or node.get("target_dir")))
    env = environment.for_shell(os.environ, extra)
    result = process.run(Command(argv, b"", env, cwd), log, log, LIMIT)
    why = process.explain(result, argv, LIMIT)
    passed = result.code == 0 and not result.stopped
    said = process.tail(log, TAIL).strip()
    shown = node.get("validate") or node.get("command") or " ".join(argv)
    return {"passed": passed, "text": "" if passed else f"{shown}: {why}\n\n{said}".strip(), "by": shown, "log": log}


def _question(node: Node, evidence: str) -> str:
    told = "\n".join(f"- {name}: {node.get(name)}" for name in assignment.TOLD if node.get(name))
    return (
        f"Review the work on the node {node.id} ({node.label}).\n\n{told}\n\n"
        f"What the one who did it showed is in the file {evidence or '(none)'}. Look at the files: does the work meet "
        "the acceptance criteria? You only judge: change nothing.\n\n"
        "Write each finding as a line `ISSUE: C | text | place` (C critical, H high, M medium, L low).\n"
        "End with one line: VERDICT: GO, VERDICT: CONDITIONAL or VERDICT: NO-GO.\n"
    )
