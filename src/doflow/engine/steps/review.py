"""A review: personas answer side by side, a fixer works through what they found, rounds go on until it converges.

Every answer is in the ledger as soon as it is given, every round of fixes is a commit: killed anywhere, a review goes on
where it was. No verdict, no persona, nobody who answered: never a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from doflow.agents import call as calling, prompt_text as render, selection as doers, spending as budget
from doflow.agents.rate_limits import Patience
from doflow.engine.jobs import agent_results as returned, outcomes as endings, runner as frame
from doflow.engine.jobs.commit import settle
from doflow.engine.steps import review_command, review_material as reviewed, review_progress as reviewing, reviewers
from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Finding
from doflow.flow.model import Outcome, Status, Step
from doflow.guard.fence.fence import Fence
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.runs.state.lockfile import Artifact
from doflow.util import atomic_files as files
from doflow.util.records import replace

_AT_ONCE = 4


def run(step: Step, world: World, fence: Fence) -> Outcome:
    job = Job(step, world.key(step), (), ())
    outcome = _missing(job, world)
    if outcome is None:
        world.ledger.add("step_starting", step=step.id, attempt=1, key=job.key.key)
        by_command = (step.mode or world.settings.review_mode) == "command"
        outcome = _patiently(
            job, world, lambda: review_command.run(job, world) if by_command else _rounds(job, world, fence)
        )
    if outcome.ok:
        outcome = _done(step, world, outcome)
    if not outcome.ok:
        endings.told(job, world, outcome)
    return outcome


def _patiently(job: Job, world: World, review: Callable[[], Outcome]) -> Outcome:
    """Again and again while a quota is used up and the settings let us wait, or somebody else can do it."""
    waiting = Patience(job, world)
    ended: Outcome | None = None
    while ended is None:
        ended = waiting.over(review())
    return endings.hinted(ended, world)


def _missing(job: Job, world: World) -> Outcome | None:
    if job.key.missing:
        names = ", ".join(job.key.missing)
        return Outcome(Status.FAILED, f"{job.name} reviews {names}, which does not exist", f"doflow why {job.name}")
    if not job.step.personas:
        return Outcome(
            Status.FAILED, f"{job.name} has no persona: nobody would review", "name some: personas: [critical]"
        )
    return None


def _rounds(job: Job, world: World, fence: Fence) -> Outcome:
    step = job.step
    depth, most = reviewed.depth(step, world)
    now = reviewing.replay(step.id, world.book.reviews.get(step.id, []))
    here = reviewed.material(step, world)
    if now is None or reviewed.outdated(job, world) or (now.of != here and not _mended(job, now, world)):
        now = Progress(1, here)
        reviewers.hear(world, "review_started", step=step.id, of=now.of, depth=depth)
    while True:
        now, trouble = _round(job, now, world, fence)
        if trouble is not None and now.known and budget.reached(step, world):
            return _unpaid(step, world, now, depth)
        if trouble is not None:
            return trouble
        found = reviewing.merged(step.id, now)
        verdict = findings.verdict(found)
        _write(step, world, verdict, now.round, depth, found)
        blocking = findings.blocking(found)
        world.ledger.add(
            "review_round", step=step.id, round=now.round, of=most, verdict=verdict, blocking=len(blocking),
            findings=len(found),
        )  # fmt: skip
        if reviewing.over(step.id, now, most) or _spent(step, world, now.round):
            return _verdict(step, world, verdict, found, now.round)
        fixed = _fix(job, now, blocking, world, fence)
        if not fixed.ok:
            return fixed
        after = reviewed.material(step, world)
        reviewers.hear(world, "review_fixed", step=step.id, round=now.round, of=now.of, after=after, commit=fixed.text)
        if after == now.of:
            return _verdict(step, world, verdict, found, now.round)
        now = reviewing.advance(step.id, now, after, fixed.text)


def _spent(step: Step, world: World, round_: int) -> bool:
    """The budget is used up: whoever would mend and look again cannot be called."""
    full = budget.reached(step, world)
    if full is not None:
        message = f"{full.reason}: {step.id} ends after round {round_}, with what is open; {full.hint}"
        world.ledger.add("warning", step=step.id, message=message)
    return full is not None


def _unpaid(step: Step, world: World, now: Progress, depth: str) -> Outcome:
    """A round that not everybody could look at: what was open before it counts as open."""
    _spent(step, world, now.round - 1)
    verdict = findings.verdict(now.known)
    _write(step, world, verdict, now.round - 1, depth, now.known)
    return _verdict(step, world, verdict, now.known, now.round - 1)


def _round(job: Job, now: Progress, world: World, fence: Fence) -> tuple[Progress, Outcome | None]:
    """Ask every persona that has not answered yet. Reviewers write nothing: what one does write is put back."""
    given = {answer.persona for answer in now.answers}
    waiting = [name for name in job.step.personas if name not in given]
    if not waiting:
        return now, None
    with world.guard:
        fence.enter(job)
    try:
        with ThreadPoolExecutor(min(_AT_ONCE, len(waiting))) as pool:
            limit: list[Outcome] = []  # once one is limited, nobody else is called
            results = list(pool.map(lambda name: reviewers.ask(job, now, name, world, limit), waiting))
        with world.guard:
            strays = fence.look(job)[1]
    finally:
        with world.guard:
            fence.leave(job)
    if strays:
        about = {"step": job.step.id, "round": now.round, "of": now.of}
        reviewers.hear(world, "review_voided", **about, personas=waiting)
        hint = (
            f"that is put back and kept (doflow quarantine list), no answer of this round counts; then: {world.again}"
        )
        return now, Outcome(Status.REFUSED, f"a reviewer of {job.name} wrote {', '.join(strays[:5])}", hint)
    answers = (*now.answers, *(answer for answer, _ in results if answer is not None))
    order = {name: place for place, name in enumerate(job.step.personas)}
    heard = replace(now, answers=tuple(sorted(answers, key=lambda answer: order.get(answer.persona, 99))))
    return heard, _worst([outcome for answer, outcome in results if answer is None])


def _fix(job: Job, now: Progress, blocking: tuple[Finding, ...], world: World, fence: Fence) -> Outcome:
    """One call of the fixer, which may change what is reviewed; its changes become a commit. `text` = its id."""
    step = job.step
    listed = findings.lines(blocking)
    mine = reviewed.mendable(step, world)
    writes = None if world.reviews_code(step) else tuple(f"/{path}" for path in mine)
    work = replace(reviewed.fixing(step, now, blocking), writes=writes, mends=frozenset(mine))
    if now.of != reviewed.material(step, world) and reviewed.is_mended(work, world):
        return Outcome(Status.DONE, text=reviewed.commit_of(work, world))

    def produce(job: Job, world: World, attempt: int) -> Outcome:
        ask = calling.asked(job, world, doers.profile(job.step, world), attempt, "fixer", "")
        ask = replace(ask, prompt=render.fix(step.id, world.run.dir, listed, mine, writes is None), round=now.round)
        return calling.send(ask, job, world, watching.log_path(job, world, attempt, "fixer"))

    outcome = frame.perform(work, world, fence, produce)
    return replace(outcome, text=world.last_commit) if outcome.ok else outcome


def _mended(job: Job, now: Progress, world: World) -> bool:
    """The material differs only because the fixer was through with it when an earlier process was killed."""
    work = reviewed.fixing(job.step, now, findings.blocking(reviewing.merged(job.step.id, now)))
    return reviewed.is_mended(work, world) or returned.kept(work, world) is not None


def _verdict(step: Step, world: World, verdict: str, found: tuple[Finding, ...], rounds: int) -> Outcome:
    """GO and CONDITIONAL end the review; NO-GO pauses it until what is reviewed changes."""
    open_ = findings.blocking(found)
    if verdict != "NO-GO":
        conditions = keys.short(findings.lines(open_), 8) if open_ else ""
        return Outcome(Status.DONE, marker=f"{verdict} {conditions}".strip())
    path = findings.file(world.run.dir, step.id)
    worst = "".join(f"\n    {line[2:]}" for line in findings.lines(open_).splitlines())
    edit = "edit and commit the code" if world.reviews_code(step) else "edit what is reviewed"
    hint = f"{edit} and run {world.again} again, or take it as it is: doflow adopt {step.id}"
    many = f"{rounds} round{'s' if rounds > 1 else ''}"
    return Outcome(Status.PAUSED, f"NO-GO after {many}, see {path}:{worst}", hint)


def _done(step: Step, world: World, outcome: Outcome) -> Outcome:
    """Recorded with the key as it is at the end: the fixer may have changed what the review reads."""
    path = findings.file(world.run.dir, step.id)
    makes = (path,) if world.digest(path) else ()
    job = Job(step, world.key(step), makes, (), subject=f"{step.id}: {outcome.marker.split(' ')[0]}")
    if makes:  # until its commit is there the review is not done, whatever the lock on disk says
        entry = world.ledger.add("returned", step=step.id, key=job.key.key, files={path: world.digest(path)})
        world.book.returned[step.id] = entry
    return settle(job, world, outcome)


def _write(step: Step, world: World, verdict: str, rounds: int, depth: str, found: tuple[Finding, ...]) -> None:
    path = findings.file(world.run.dir, step.id)
    text = findings.document(step.id, verdict, rounds, depth, found)
    with world.guard:
        files.write(str(world.root / path), text.encode())
        world.book.artifacts[path] = Artifact(world.digest(path), "doflow", step.id)


def _worst(outcomes: list[Outcome]) -> Outcome | None:
    rank = (Status.CANCELLED, Status.AUTH, Status.REFUSED, Status.FAILED, Status.TIMEOUT, Status.RATE_LIMITED)
    order = {status: place for place, status in enumerate(rank)}
    return min(outcomes, key=lambda found: order.get(found.status, len(rank)), default=None)
