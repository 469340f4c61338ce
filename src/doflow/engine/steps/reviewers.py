"""The reviewers of a review: their prompts, asking one, and logging its answer at once."""

from __future__ import annotations

from dataclasses import replace

from doflow.agents import call, prompt_text, rate_limits, selection
from doflow.engine.steps import review_progress
from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Answer
from doflow.flow.model import Outcome, Status
from doflow.git import history
from doflow.runs import fingerprint, jobs
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.hints import Next
from doflow.util.process import runner


def ask_persona(
    job: Job, now: Progress, persona: str, context: RunContext, limit: list[Outcome]
) -> tuple[Answer | None, Outcome]:
    """Ask one persona; once more if its answer is unusable, and up to `retry` times after a transient failure."""
    rule, attempt, reasons = rate_limits.retry_policy(job, context), 0, [""]
    while True:
        attempt += 1
        if runner.stopping():
            return None, Outcome(Status.CANCELLED, "interrupted")
        if limit:
            return None, limit[0]
        outcome = _call(job, now, persona, context, attempt)
        answer = findings.parse_answer(persona, outcome.text) if outcome.ok else None
        if answer is not None and not answer.lack:
            with context.guard:
                about = {"step": job.step.id, "round": now.round, "of": now.of}
                record_review_event(context, "review_answer", **about, **findings.answer_to_json(answer))
            return answer, outcome
        if answer is not None:
            outcome = _unusable(job, now, answer)
        elif not outcome.transient:
            limit += [outcome] if outcome.status is Status.RATE_LIMITED else []
            return None, outcome
        reasons.append(outcome.reason)
        most = 1 if answer is not None else max(1, rule.attempts)
        if attempt > most or reasons.count(outcome.reason) > 2:
            return None, outcome
        wait = rate_limits.backoff_seconds(rule, attempt) if outcome.transient and rule.attempts else 0.0
        reason = f"{persona}: {outcome.reason}"
        context.events.add("retry", step=job.step.id, attempt=attempt, reason=reason, wait=round(wait, 3))
        if not rate_limits.sleep(wait):  # the run is being stopped
            return None, outcome


def _unusable(job: Job, now: Progress, answer: Answer) -> Outcome:
    """No verdict, or an unreadable issue, is never a pass."""
    hint = "it must end with `VERDICT: GO` or another"
    if answer.unread:
        hint = "an issue is `ISSUE: C | text | place` (C, H, M or L)"
    logs = Next(("doflow", "logs", job.step.id), does="shows its output")
    reason = f"{answer.persona} {answer.lack} in round {now.round} of {job.name}"
    return Outcome(Status.FAILED, reason, hint, next=(logs,))


def _call(job: Job, now: Progress, persona: str, context: RunContext, attempt: int) -> Outcome:
    ask = call.build_ask(job, context, selection.find_profile(job.step, context), attempt, "persona", "")
    prompt = _prompt(job, now, persona, context)
    ask = replace(ask, prompt=prompt, persona=persona, round=now.round, makes=(), read_only=True)
    return call.send(ask, job, context, jobs.log_path(job, context, attempt, part=f"{now.round}:{persona}"))


def preview(job: Job, persona: str, context: RunContext) -> str:
    """The prompt for this persona (default: the first) if the review continued now."""
    step = job.step
    now = review_progress.replay(step.id, context.record.review(step.id))
    now = now if now and now.of == review_progress.material_digest(step, context) else Progress(1, "")
    return _prompt(job, now, persona or step.personas[0], context)


def _prompt(job: Job, now: Progress, persona: str, context: RunContext) -> str:
    step = job.step
    voice = next((found.text for found in step.voices if found.name == persona), "")
    own = fingerprint.substitute(step.prompt.text, context.params) if step.prompt else ""
    if now.round == 1:
        inputs = call.step_inputs(job, context)
        code = context.code_diff() if context.order.reviews_code(step) else ""
    else:
        inputs, code = (), history.commit_patch(context.git, now.fix) if now.fix else ""
    return prompt_text.review_prompt(persona, voice, own, context.run.dir, now.round, inputs, code, now.known)


def record_review_event(context: RunContext, event: str, **data: object) -> None:
    context.record.add_review_entry(context.events.add(event, **data))
