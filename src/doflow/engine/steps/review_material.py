"""What a review looks at: its material, how large it is, what changed in it, what its fixer may mend."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Finding
from doflow.flow.markdown import Phase
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import recorded_context as beside
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.util.records import replace


def material(step: Step, world: World) -> str:
    """The digest of what is reviewed: its inputs as they are now and, behind `implement`, the code."""
    reads, _ = keys.read_digests(step.reads, world.place)
    code = world.code_diff() if world.reviews_code(step) else ""
    return keys.short([sorted(reads.items()), code, list(step.personas)])


def outdated(job: Job, world: World) -> bool:
    """Were the answers given for the record, by others than would be asked now, or to other words?"""
    record = world.book.steps.get(job.step.id)
    if record is None or world.book.reviews[job.step.id][0]["at"] > record.at:
        return False
    told = record.parts.get("voices") != job.key.parts.get("voices")
    return told or bool(beside.compared(job.step, record, world)[0])


def depth(step: Step, world: World) -> tuple[str, int]:
    """By the size of what is reviewed, unless the flow says how many rounds."""
    if world.reviews_code(step):
        changed = world.code_diff().splitlines()
        count = sum(1 for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---"))
        many = sum(1 for line in changed if line.startswith("diff --git "))
    else:
        paths = [path for read in step.reads for path in world.place.expand(read.path)]
        count = sum(len((world.place.text(path) or "").splitlines()) for path in paths)
        many = len(paths)
    name, most = findings.depth(count, many)
    return name, step.rounds or most


def changed(now: Progress, world: World) -> str:
    from doflow.git import history

    return history.patch(world.git, now.fix) if now.fix else ""


def fixing(step: Step, now: Progress, blocking: Sequence[Finding]) -> Job:
    """The fixer's job in this round; its key says which findings of which material."""
    listed = findings.lines(blocking)
    title = f"{len(blocking)} finding{'s' if len(blocking) > 1 else ''} of round {now.round}"
    key = keys.Key(keys.short([now.of, listed], 64), {"findings": keys.short(listed)}, {})
    fixer = replace(step, agent=step.fixer or step.agent, prompt=None)
    return Job(fixer, key, phase=Phase(f"fix{now.round}", title, listed, 0), subject=f"{step.id}: {title}")


def is_mended(fixing: Job, world: World) -> bool:
    """The fixer's work is recorded, if not yet as the end of a round."""
    record = world.book.steps.get(fixing.name)
    return record is not None and record.key == fixing.key.key


def commit_of(fixing: Job, world: World) -> str:
    from doflow.git import history

    found = history.history(world.git, world.run.name)
    return next((entry["id"] for entry in found if entry.get("Doflow-Key") == fixing.key.key), "")


def mendable(step: Step, world: World) -> tuple[str, ...]:
    """What a fixer may change of what is reviewed: not what steps before it were made from, they would all be stale."""
    found = [path for read in step.reads for path in world.place.expand(read.path) if world.digest(path)]
    order = world.order()
    before = [world.flow.step(name) for name in order[: order.index(step.id)]] if step.id in order else []
    used = {
        path for other in before if other and other.kind != "review"
        for read in other.reads for path in world.place.expand(read.path)
    }  # fmt: skip
    left = tuple(path for path in found if path not in used)
    return left if left or world.reviews_code(step) else tuple(found)
