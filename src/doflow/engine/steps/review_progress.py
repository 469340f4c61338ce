"""The progress of a review, replayed from the event log, so that no reviewer is asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from doflow.flow import findings
from doflow.flow.findings import Answer, Finding
from doflow.flow.markdown import Phase
from doflow.flow.model import Step
from doflow.git import history
from doflow.runs import fingerprint, freshness
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job


@dataclass(frozen=True, slots=True)
class Progress:
    """Round `round` of material `of`; `answers` given in it so far; `known` findings before it.

    `stuck`: the fixer left the material as it was, so another round would find the same."""

    round: int
    of: str
    answers: tuple[Answer, ...] = ()
    known: tuple[Finding, ...] = ()
    fix: str = ""
    seen: tuple[frozenset[str], ...] = ()
    stuck: bool = False


def replay(step: str, entries: Sequence[Mapping[str, Any]]) -> Progress | None:
    """The progress of a review and its material; None = not started."""
    if not entries or entries[0]["event"] != "review_started":
        return None
    now = Progress(1, entries[0]["of"])
    for entry in entries[1:]:
        if entry["event"] == "review_answer" and entry["round"] == now.round and entry["of"] == now.of:
            now = replace(now, answers=(*now.answers, findings.answer_from_json(dict(entry))))
        elif entry["event"] == "review_voided" and entry["round"] == now.round and entry["of"] == now.of:
            now = replace(now, answers=tuple(one for one in now.answers if one.persona not in entry["personas"]))
        elif entry["event"] == "review_fixed" and entry["of"] == now.of:
            same = entry["after"] == now.of
            now = replace(now, stuck=True) if same else advance(step, now, entry["after"], entry.get("commit", ""))
    return now


def merge_findings(step: str, now: Progress) -> tuple[Finding, ...]:
    return findings.merge_findings(step, now.known, now.answers, now.round)


def advance(step: str, now: Progress, of: str, commit: str) -> Progress:
    """The next round, of the material as the fixer left it."""
    known = merge_findings(step, now)
    open_ = frozenset(found.id for found in findings.blocking(known))
    return Progress(now.round + 1, of, (), known, commit, (*now.seen, open_))


def is_over(step: str, now: Progress, rounds: int) -> bool:
    """No blocking finding is open, the same set came twice, nothing was fixed, or the rounds are used up."""
    open_ = frozenset(found.id for found in findings.blocking(merge_findings(step, now)))
    return not open_ or now.stuck or now.round >= rounds or open_ in now.seen


def material_digest(step: Step, context: RunContext) -> str:
    """The digest of the reviewed material: the current inputs and, after `implement`, the code."""
    reads, _ = fingerprint.read_digests(step.reads, context.files)
    code = context.code_diff() if context.order.reviews_code(step) else ""
    return fingerprint.short_hash([sorted(reads.items()), code, list(step.personas)])


def is_outdated(job: Job, context: RunContext) -> bool:
    """Were the answers for the recorded review given with other prompts or personas than now?"""
    record = context.record.steps.get(job.step.id)
    if record is None:  # no verdict yet, or its commit is pending
        entry = context.record.returned.get(job.step.id)
        return entry is not None and entry["key"] != job.key.key
    if context.record.review(job.step.id)[0]["at"] > record.at:
        return False
    changed = any(record.parts.get(part) != job.key.parts.get(part) for part in ("prompt", "voices"))
    return changed or bool(freshness.compare_settings(job.step, record, context).reasons)


def depth(step: Step, context: RunContext) -> tuple[str, int]:
    """Depth and rounds by the size of the material, unless the flow sets the rounds."""
    if context.order.reviews_code(step):
        changed = context.code_diff().splitlines()
        count = sum(1 for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---"))
        many = sum(1 for line in changed if line.startswith("diff --git "))
    else:
        paths = [path for read in step.reads for path in context.files.expand(read.path)]
        count = sum(len((context.files.text(path) or "").splitlines()) for path in paths)
        many = len(paths)
    name, most = findings.depth(count, many)
    return name, step.rounds or most


def fix_job(step: Step, now: Progress, blocking: Sequence[Finding]) -> Job:
    """The fixer's job in this round; its key covers the findings and the material."""
    listed = findings.format_findings(blocking)
    title = f"{len(blocking)} finding{'s' if len(blocking) > 1 else ''} of round {now.round}"
    parts = {"findings": fingerprint.short_hash(listed)}
    key = fingerprint.Key(fingerprint.short_hash([now.of, listed], 64), parts, {})
    fixer = replace(step, agent=step.fixer or step.agent, prompt=None)
    return Job(fixer, key, phase=Phase(f"fix{now.round}", title, listed, 0), subject=f"{step.id}: {title}")


def is_fixed(fixing: Job, context: RunContext) -> bool:
    """Is the fixer's work recorded (even if the round is not complete)?"""
    record = context.record.steps.get(fixing.name)
    return record is not None and record.key == fixing.key.key


def commit_of(fixing: Job, context: RunContext) -> str:
    found = history.run_commits(context.git, context.run.name)
    return next((entry["id"] for entry in found if entry.get("Doflow-Key") == fixing.key.key), "")


def fixable_files(step: Step, context: RunContext) -> tuple[str, ...]:
    """The reviewed files that a fixer may change: not the inputs of earlier steps, which would become out of date."""
    found = [path for read in step.reads for path in context.files.expand(read.path) if context.files.digest(path)]
    order = context.order.active()
    before = [context.flow.step(name) for name in order[: order.index(step.id)]] if step.id in order else []
    used = {
        path for other in before if other and other.kind != "review"
        for read in other.reads for path in context.files.expand(read.path)
    }  # fmt: skip
    left = tuple(path for path in found if path not in used)
    return left if left or context.order.reviews_code(step) else tuple(found)
