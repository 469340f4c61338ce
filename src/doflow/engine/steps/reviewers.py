"""The reviewers of a review: what each is told, asking one, and its answer in the ledger as soon as it is given."""

from __future__ import annotations

from doflow.agents import call as calling, prompt_text as render, rate_limits as patience, selection as doers
from doflow.engine.steps import review_material as reviewed, review_progress as reviewing
from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Answer
from doflow.flow.model import Outcome, Retry, Status
from doflow.runs import run_record as books, step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.util.process import runner as process
from doflow.util.records import replace


def ask(job: Job, now: Progress, persona: str, world: World, limit: list[Outcome]) -> tuple[Answer | None, Outcome]:
    """One persona, asked once more if its answer cannot be used, and as often as `retry` says if its failure may pass."""
    rule, attempt, reasons = patience.retry(job, world), 0, [""]
    while True:
        attempt += 1
        if process.stopping():
            return None, Outcome(Status.CANCELLED, "interrupted")
        if limit:
            return None, limit[0]
        outcome = _call(job, now, persona, world, attempt)
        answer = findings.read(persona, outcome.text) if outcome.ok else None
        if answer is not None and not answer.lack:
            with world.guard:
                about = {"step": job.step.id, "round": now.round, "of": now.of}
                hear(world, "review_answer", **about, **findings.plain(answer))
            return answer, outcome
        if answer is not None:
            outcome = _unusable(job, now, answer)
        elif not outcome.transient:
            limit += [outcome] if outcome.status is Status.RATE_LIMITED else []
            return None, outcome
        reasons.append(outcome.reason)
        most = 1 if answer is not None else max(1, rule.attempts)
        if (
            attempt > most
            or reasons.count(outcome.reason) > 2
            or not _again(job, persona, outcome, attempt, rule, world)
        ):
            return None, outcome


def _unusable(job: Job, now: Progress, answer: Answer) -> Outcome:
    """No verdict, or an issue that nobody can read: never a pass."""
    form = (
        "an issue is `ISSUE: C | text | place` (C, H, M or L)"
        if answer.unread
        else "it must end with `VERDICT: GO` or another"
    )
    hint = f"{form}; doflow logs {job.step.id} shows what it said"
    return Outcome(Status.FAILED, f"{answer.persona} {answer.lack} in round {now.round} of {job.name}", hint)


def _again(job: Job, persona: str, outcome: Outcome, attempt: int, rule: Retry, world: World) -> bool:
    """Wait before the next attempt, if the settings say so; False = the run is being stopped."""
    wait = patience.backoff(rule, attempt) if outcome.transient and rule.attempts else 0.0
    reason = f"{persona}: {outcome.reason}"
    world.ledger.add("retry", step=job.step.id, attempt=attempt, reason=reason, wait=round(wait, 3))
    return patience.sleep(wait)


def _call(job: Job, now: Progress, persona: str, world: World, attempt: int) -> Outcome:
    profile = doers.profile(job.step, world)
    question = calling.asked(job, world, profile, attempt, "persona", "")
    question = replace(
        question, prompt=_prompt(job, now, persona, world), persona=persona, round=now.round, makes=(), read_only=True
    )
    return calling.send(question, job, world, watching.log_path(job, world, attempt, part=f"{now.round}:{persona}"))


def preview(job: Job, persona: str, world: World) -> str:
    """What this persona (else the first) would be told if the review went on now."""
    step = job.step
    now = reviewing.replay(step.id, world.book.reviews.get(step.id, []))
    now = now if now and now.of == reviewed.material(step, world) else Progress(1, "")
    return _prompt(job, now, persona or step.personas[0], world)


def _prompt(job: Job, now: Progress, persona: str, world: World) -> str:
    step = job.step
    voice = next((found.text for found in step.voices if found.name == persona), "")
    own = keys.substitute(step.prompt.text, world.params) if step.prompt else ""
    if now.round == 1:
        inputs = calling.inputs(job, world)
        code = world.code_diff() if world.reviews_code(step) else ""
    else:
        inputs, code = (), reviewed.changed(now, world)
    return render.review(persona, voice, own, world.run.dir, now.round, inputs, code, now.known)


def hear(world: World, event: str, **data: object) -> None:
    books.reviewed(world.book, world.ledger.add(event, **data))
