"""A review: personas answer in parallel, a fixer addresses their findings, in rounds until it converges.

Every answer is logged at once, every round of fixes is a commit: a killed review resumes where it was. No verdict, no
persona or no answer is never a pass.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from doflow.agents import call, prompt_text, selection, spending
from doflow.agents.rate_limits import parse_resume_time
from doflow.engine.jobs import agent_results, job_runner, outcomes
from doflow.engine.jobs.commit import complete_job
from doflow.engine.steps import review_progress, reviewers
from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Finding
from doflow.flow.model import Outcome, Status, Step
from doflow.guard import quarantine
from doflow.guard.workspace.interface import Workspace
from doflow.runs import fingerprint, jobs, next_steps
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.lockfile import Artifact
from doflow.util import atomic_files
from doflow.util.hints import Next
from doflow.util.process import runner as process
from doflow.util.process.runner import Command

_AT_ONCE = 4


def run(step: Step, context: RunContext, fence: Workspace) -> Outcome:
    job = Job(step, context.key(step), (), ())
    outcome = _missing(job)
    if outcome is None:
        context.events.add("step_starting", step=step.id, attempt=1, key=job.key.key)
        if (step.mode or context.settings.review_mode) == "command":
            outcome = job_runner.wait_for_limits(job, context, lambda: run_review_command(job, context))
        else:
            outcome = job_runner.wait_for_limits(job, context, lambda: _rounds(job, context, fence))
    if outcome.ok:
        outcome = _done(step, context, outcome)
    if not outcome.ok:
        outcomes.log_outcome(job, context, outcome)
    return outcome


def _missing(job: Job) -> Outcome | None:
    if job.key.missing:
        return outcomes.missing_inputs(job, job.key.missing, Next(("doflow", "why", job.name)))
    if not job.step.personas:
        reason = f"{job.name} has no personas, so there are no reviewers"
        return Outcome(Status.FAILED, reason, "add some: personas: [critical]")
    return None


def _rounds(job: Job, context: RunContext, fence: Workspace) -> Outcome:
    step = job.step
    depth, most = review_progress.depth(step, context)
    now = review_progress.replay(step.id, context.record.review(step.id))
    here = review_progress.material_digest(step, context)
    outdated = now is None or review_progress.is_outdated(job, context)
    if now is None or outdated or (now.of != here and not _is_fixed(job, now, context, fence)):
        now = Progress(1, here)
        reviewers.record_review_event(context, "review_started", step=step.id, of=now.of, depth=depth)
    while True:
        now, trouble = _round(job, now, context, fence)
        if trouble is not None and now.known and spending.budget_stop(step, context):
            return _unpaid(step, context, now, depth)
        if trouble is not None:
            return trouble
        found = review_progress.merge_findings(step.id, now)
        verdict = findings.verdict(found)
        _write(step, context, verdict, now.round, depth, found)
        blocking = findings.blocking(found)
        context.events.add(
            "review_round", step=step.id, round=now.round, of=most, verdict=verdict, blocking=len(blocking),
            findings=len(found),
        )  # fmt: skip
        if review_progress.is_over(step.id, now, most) or _spent(step, context, now.round):
            return _verdict(step, context, verdict, found, now.round)
        fixed = _fix(job, now, blocking, context, fence)
        if not fixed.ok:
            return fixed
        after = review_progress.material_digest(step, context)
        reviewers.record_review_event(
            context, "review_fixed", step=step.id, round=now.round, of=now.of, after=after, commit=fixed.text
        )
        if after == now.of:
            return _verdict(step, context, verdict, found, now.round)
        now = review_progress.advance(step.id, now, after, fixed.text)


def _spent(step: Step, context: RunContext, round_: int) -> bool:
    """Is the budget used up, so that neither fixer nor reviewers can be called again?"""
    full = spending.budget_stop(step, context)
    if full is not None:
        message = f"{full.reason}: {step.id} ends after round {round_} with open findings"
        fields = next_steps.event_fields(full.hint, full.next, context)
        context.events.add("warning", step=step.id, message=message, **fields)
    return full is not None


def _unpaid(step: Step, context: RunContext, now: Progress, depth: str) -> Outcome:
    """The budget ran out during a round: the findings of the previous round stay open."""
    _spent(step, context, now.round - 1)
    verdict = findings.verdict(now.known)
    _write(step, context, verdict, now.round - 1, depth, now.known)
    return _verdict(step, context, verdict, now.known, now.round - 1)


def _round(job: Job, now: Progress, context: RunContext, fence: Workspace) -> tuple[Progress, Outcome | None]:
    """Ask every persona that has not answered yet. Reviewers may not write: their changes are reverted."""
    given = {answer.persona for answer in now.answers}
    waiting = [name for name in job.step.personas if name not in given]
    if not waiting:
        return now, None
    with context.guard:
        fence.enter(job)
        seen = fence.see(job)
    try:
        with ThreadPoolExecutor(min(_AT_ONCE, len(waiting))) as pool:
            limit: list[Outcome] = []  # once one is rate limited, no other is called
            results = list(pool.map(lambda name: reviewers.ask_persona(job, now, name, seen, limit), waiting))
        with context.guard:
            strays = fence.look(job)[1]
    finally:
        with context.guard:
            fence.leave(job)
    if strays:
        about = {"step": job.step.id, "round": now.round, "of": now.of}
        reviewers.record_review_event(context, "review_voided", **about, personas=waiting)
        kept = Next(outcomes.QUARANTINE, "reverted, a copy is in quarantine; the answers of this round are discarded")
        reason = f"a reviewer of {job.name} modified {', '.join(strays[:5])}"
        return now, Outcome(Status.REFUSED, reason, next=(kept, next_steps.resume(context, link="then")))
    answers = (*now.answers, *(answer for answer, _ in results if answer is not None))
    order = {name: place for place, name in enumerate(job.step.personas)}
    heard = replace(now, answers=tuple(sorted(answers, key=lambda answer: order.get(answer.persona, 99))))
    return heard, _worst([outcome for answer, outcome in results if answer is None])


def _fix(job: Job, now: Progress, blocking: tuple[Finding, ...], context: RunContext, fence: Workspace) -> Outcome:
    """One call of the fixer, which may change the reviewed files; its changes are committed. `text` = the commit id."""
    step = job.step
    listed = findings.format_findings(blocking)
    files = review_progress.fixable_files(step, context)
    writes = None if context.order.reviews_code(step) else tuple(f"/{path}" for path in files)
    work = replace(review_progress.fix_job(step, now, blocking), writes=writes, repairs=frozenset(files))
    if now.of != review_progress.material_digest(step, context) and review_progress.is_fixed(work, context):
        return Outcome(Status.DONE, text=review_progress.commit_of(work, context))

    def produce(job: Job, context: RunContext, attempt: int) -> Outcome:
        ask = call.build_ask(job, context, selection.find_profile(job.step, context), attempt, "fixer", "")
        prompt = prompt_text.fix_prompt(step.id, context.run.dir, listed, files, writes is None)
        log = jobs.log_path(job, context, attempt, "fixer")
        return call.send(replace(ask, prompt=prompt, round=now.round), job, context, log)

    outcome = job_runner.run_job(work, context, fence, produce)
    return replace(outcome, text=context.last_commit) if outcome.ok else outcome


def _is_fixed(job: Job, now: Progress, context: RunContext, fence: Workspace) -> bool:
    """Does the material differ only because the fixer had finished when an earlier process was killed?"""
    work = review_progress.fix_job(job.step, now, findings.blocking(review_progress.merge_findings(job.step.id, now)))
    return review_progress.is_fixed(work, context) or agent_results.find_returned(work, fence.see(work)) is not None


def _verdict(step: Step, context: RunContext, verdict: str, found: tuple[Finding, ...], rounds: int) -> Outcome:
    """GO and CONDITIONAL end the review; NO-GO pauses it until the reviewed files change."""
    open_ = findings.blocking(found)
    if verdict != "NO-GO":
        conditions = fingerprint.short_hash(findings.format_findings(open_), 8) if open_ else ""
        return Outcome(Status.DONE, marker=findings.ReviewResult(verdict, conditions).marker)
    path = context.findings_path(step.id)
    worst = "".join(f"\n    {line[2:]}" for line in findings.format_findings(open_).splitlines())
    edit = "edit and commit the code" if context.order.reviews_code(step) else "edit the reviewed files"
    adopt = Next(("doflow", "adopt", step.id), "to accept it anyway", link="or")
    many = f"{rounds} round{'s' if rounds > 1 else ''}"
    steps = (next_steps.resume(context, why=f"{edit} and run"), adopt)
    return Outcome(Status.PAUSED, f"NO-GO after {many}, see {path}:{worst}", next=steps)


def _done(step: Step, context: RunContext, outcome: Outcome) -> Outcome:
    """Record the review with its final key: the fixer may have changed its inputs."""
    path = context.findings_path(step.id)
    files = {path: context.files.digest(path)} if context.files.digest(path) else {}
    makes = (path,) if files and context.given else ()
    body = (context.files.text(path) or "") if files and not makes else ""  # the file itself is not committed
    result = findings.review_result(outcome.marker)
    subject = f"{step.id}: {result.verdict if result else outcome.marker}"
    job = Job(step, context.key(step), makes, (), subject=subject, body=body)
    if files:  # the review is done only when committed, whatever the lock file says
        entry = context.events.add("returned", step=step.id, key=job.key.key, files=files if makes else {})
        context.record.agent_returned(step.id, entry)
    return complete_job(job, context, outcome)


def _write(step: Step, context: RunContext, verdict: str, rounds: int, depth: str, found: tuple[Finding, ...]) -> None:
    path = context.findings_path(step.id)
    text = findings.findings_document(step.id, verdict, rounds, depth, found)
    with context.guard:
        held = context.record.returned.get(step.id, {}).get("files", {}).get(path)
        if held and context.files.digest(path) not in ("", held):  # manual edits before it was committed
            quarantine.quarantine_outputs(context, (path,), f"manual edits before {step.id} was committed", step.id)
            message = f"{path}: edited before it was committed; your version is in quarantine"
            context.events.add("warning", step=step.id, message=message, hint="doflow quarantine list")
        atomic_files.write_file(str(context.root / path), text.encode())
        if context.given:
            context.record.add_artifacts({path: Artifact(context.files.digest(path), "doflow", step.id)})


def _worst(outcomes: list[Outcome]) -> Outcome | None:
    rank = (Status.CANCELLED, Status.AUTH, Status.REFUSED, Status.FAILED, Status.TIMEOUT, Status.RATE_LIMITED)
    order = {status: place for place, status in enumerate(rank)}
    return min(outcomes, key=lambda found: order.get(found.status, len(rank)), default=None)


def run_review_command(job: Job, context: RunContext) -> Outcome:
    """0 converged, 1 error, 2 NO-GO, 3 rate limit; any other code is an error, never a pass."""
    step = job.step
    argv = context.settings.review_command
    if not argv:
        hint = "doflow.yaml: review_command: [./review.sh], or review_mode: llm"
        return Outcome(Status.FAILED, f"{step.id} uses review_mode command, but review_command is not set", hint)
    target = context.files.path(step.reads[0].path) if step.reads else context.run.dir
    options = (
        "--type",
        step.id,
        "--target",
        target,
        "--feature-dir",
        context.run.dir,
        "--project-dir",
        str(context.root),
    )
    log = jobs.log_path(job, context, 1)
    Path(log).unlink(missing_ok=True)
    command = Command((*argv, *options), env=context.step_environment(step.id), cwd=str(context.root))
    result = process.run(command, log, log, jobs.job_timeout(job, context), jobs.heartbeat(job, context, log))
    output = process.tail(log, 1500)
    steps = next_steps.show_logs_then_resume(step.id, context, "shows its output")
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    if result.stopped or result.code not in (0, 2, 3):
        return Outcome(Status.FAILED, f"{process.explain(result, argv)}\n{output}", next=steps)
    if result.code == 2:
        return Outcome(Status.PAUSED, f"NO-GO: {step.id} did not converge\n{output}", next=steps)
    if result.code == 3:
        return Outcome(Status.RATE_LIMITED, f"{argv[0]} is rate limited", next=steps, resume_at=parse_resume_time(""))
    return Outcome(Status.DONE, marker="GO")
