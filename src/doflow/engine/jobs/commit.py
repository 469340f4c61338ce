"""Settling a job: its record into the lock, its files into a commit, its end into the ledger. Safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from doflow.flow import markdown as sections
from doflow.flow.model import Outcome, Status, Step
from doflow.git import repository as look
from doflow.runs import step_logs as watching
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge, recorded_context as beside
from doflow.runs.job import Job
from doflow.runs.state import event_log as ledger, fingerprint as keys, lockfile as lock
from doflow.runs.state.lockfile import Artifact, Record
from doflow.util.errors import WorldError


def settle(job: Job, world: World, outcome: Outcome) -> Outcome:
    with world.guard:
        record, artifacts = _record(job, world, outcome)
        world.put(job.name, record, artifacts)
        if job.last or (job.phase and record.marker):
            _whole(job, world, record)
        if job.phase and sections.is_backlog(job.step.phases):
            from doflow.engine.jobs import backlog_status as statuses

            artifacts |= statuses.mark(job.step, world)
        world.book.notes.pop(f"{job.step.id}.pending", None)
        try:
            commits = job.commits or job.name in world.book.returned
            commit = _committed(job, world, artifacts) if commits else ""
        except WorldError as error:
            _forget(job, world)
            kept = "the work is kept as it is; mend this and run the same command: no agent is called again"
            return Outcome(Status.FAILED, f"{job.name} is done but not committed: {error.message}",
                           f"{error.hint}\n  {kept}" if error.hint else kept, held=True)  # fmt: skip
        world.last_commit = commit
        event = "phase_complete" if job.phase else "step_complete"
        loose = not commits
        world.ledger.add(
            event, ledger.LATER if loose else True, **job.where, record=record.plain(), loose=loose, commit=commit
        )
        if loose:
            world.book.loose.add(job.name)
        for told in (world.book.begun, world.book.returned, world.book.intents):
            told.pop(job.name, None)
        if job.paid:
            watching.remember(job, world)
    return outcome


def of_phases(key: str, by: Mapping[str, str], at: str, again: Sequence[str] = ()) -> Record:
    """The record of an implement step as a whole: what follows it is done again when its phases are. `again`: the marks of
    phases that were done more than once as they are."""
    return Record(key, marker=keys.short([key, *again], 16) if again else key[:16], by=by, at=at)


def _whole(job: Job, world: World, record: Record) -> None:
    names = [f"{job.step.id}:{phase.number}" for phase, _ in judge.phase_keys(job.step, world)]
    phases = [found for name in names if (found := world.book.steps.get(name))]
    if not job.last and len(phases) < len(names):
        return
    key = job.key.key if job.last else phases[-1].key
    again = [phase.marker for phase in phases if phase.marker]
    held = world.book.steps.get(job.step.id)
    if held is None or held.key != key or again:
        world.put(job.step.id, of_phases(key, record.by, record.at, again), {})


def complete_group(world: World, name: str) -> None:
    """A step over items is done when every item is: its own record says so, without a commit."""
    group = world.flow.step(name)
    with world.guard:
        keys_ = (
            [world.book.steps[item.id].key for item in world.items(group) if item.id in world.book.steps]
            if group
            else []
        )
        if group is None or len(keys_) < len(world.items(group)):
            return
        record = Record(keys.short(keys_, 64), by={}, at=ledger.now())
        world.put(name, record, {})
        world.book.loose.add(name)
        world.ledger.add("step_complete", step=name, record=record.plain(), loose=True)


def marker(job: Job, world: World, text: str) -> str:
    """The marker line of a routing step: in its artifact first, then in the agent's last words."""
    return written(job.step, world) or sections.marker(text, tuple(route.when for route in job.step.routes))


def written(step: Step, world: World) -> str:
    """The marker that stands in the artifacts of a routing step now; '' = none."""
    wanted = tuple(route.when for route in step.routes)
    texts = (world.place.text(world.path(said)) or "" for said in step.makes)
    return next((found for text in texts if (found := sections.marker(text, wanted))), "")


def _anew(job: Job, world: World) -> bool:
    """A phase that was done before just as it is now (--force, doit forget): its code is new all the same, and what follows
    it is told by this mark."""
    return job.phase is not None and bool(world.book.returned.get(job.name, {}).get("anew"))


def _routed(job: Job, world: World, outcome: Outcome) -> str:
    return marker(job, world, outcome.text) if job.step.routes else ""


def commit_lock(world: World, subject: str, paths: tuple[str, ...] = (), step: str = "") -> str:
    """Commit the lock by itself, with files that belong to it: approvals, answers, adopted edits, the end of a run."""
    with world.guard:
        world.write_lock()
        if not world.settings.commit_artifacts:
            return ""
        given = (*world.given, lock.NAME, *(path for path, _ in world.flow.inputs))
        named = dict.fromkeys((*paths, *(f"{world.run.dir}/{name}" for name in given)))
        return _commit(world, tuple(named), _message(world, subject, step, ""), {})


def _record(job: Job, world: World, outcome: Outcome) -> tuple[Record, dict[str, Artifact]]:
    made = {path: world.digest(path) for path in job.makes}
    reads = dict(job.key.reads)
    by = beside.described(job.step, world)
    if outcome.agent:  # somebody stood in for the agent that it belongs to
        by |= {"agent": outcome.agent, "for": by.get("agent", "")}
    if outcome.model:
        by["model"] = outcome.model
    spent = world.book.spent.get(job.step.id.partition(":")[0]) if job.phase is None else None
    if spent and spent.usd:
        by["usd"] = f"{spent.usd:.4f}"
    elif outcome.usage and outcome.usage.usd is not None:
        by["usd"] = f"{outcome.usage.usd:.4f}"
    if job.step.routes and written(job.step, world):
        by["marker"] = "artifact"
    at = ledger.now()
    marker = f"anew {at}" if _anew(job, world) else outcome.marker or _routed(job, world, outcome)
    record = Record(job.key.key, _one(job.key.parts), reads or _NONE, made or _NONE, marker, _one(by), at)
    author = "agent" if job.paid else "command" if job.step.kind == "shell" else "doflow"
    artifacts = {path: Artifact(digest, author, job.name) for path, digest in made.items()}
    for path in world.book.returned.get(job.name, {}).get("files", {}):
        held = world.book.artifacts.get(path)
        if held is not None and path not in made and held.digest != world.digest(path):
            artifacts[path] = Artifact(world.digest(path), job.name, held.step)
    return record, artifacts


_NONE: Mapping[str, str] = {}
_same: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}


def _one(values: Mapping[str, str]) -> Mapping[str, str]:
    """Equal small mappings are one object: ten thousand records of a long run hold the same few."""
    return _same.setdefault(tuple(values.items()), values) if len(values) < 2 else values


def _committed(job: Job, world: World, artifacts: Mapping[str, Artifact]) -> str:
    entry = world.book.returned.get(job.name, {})
    intent = world.book.intents.get(job.name)
    world.write_lock(sync=not world.settings.commit_artifacts)
    if not world.settings.commit_artifacts and not job.phase:
        return ""
    if intent is not None:
        from doflow.git import commit as commits

        if commits.adopted(world.git, intent["base"], intent["new"]):
            return str(intent["new"])
    paths = {*entry.get("files", {}), *artifacts, f"{world.run.dir}/{lock.NAME}"}
    paths |= {f"{world.run.dir}/{name}" for name in (*world.given, *(path for path, _ in world.flow.inputs))}
    message = _message(world, _subject(job, world), job.step.id, job.key.key, job.phase.number if job.phase else "")
    verify = None
    if world.settings.verify and job.phase and job.step.kind == "implement":
        from doflow.engine.jobs import commit_hooks as showing

        verify = showing.hooks(job, world)
    made = _commit(world, tuple(sorted(paths)), message, job.where, job.paid, verify)
    if verify is not None and made:
        showing.after(job, world)
    return made


def _commit(
    world: World,
    paths: tuple[str, ...],
    message: str,
    where: Mapping[str, str],
    paid: bool = True,
    verify: Callable[[str, str], str] | None = None,
) -> str:
    from doflow.git import commit as commits

    def ready(base: str, new: str) -> None:
        if where:
            world.ledger.add("intent", paid, **where, base=base, new=new)

    now = look.find(str(world.root)).branch
    if now != world.run.branch and not world.options.reopen:
        raise WorldError(
            f"the branch was switched from {world.run.branch} to {now or 'a detached HEAD'} while {world.run.name} ran",
            f"git switch {world.run.branch}",
        )
    named = [f"{world.prefix}{path}" for path in (*paths, *world.own)]
    return commits.commit(world.git, named, message, ready, verify=verify)


def _forget(job: Job, world: World) -> None:
    """A step that could not be committed is not done; its agent's result still counts (`returned`)."""
    world.book.steps.pop(job.name, None)
    if job.last:
        world.book.steps.pop(job.step.id, None)
    with suppress(WorldError):  # the disk may be what is wrong
        world.write_lock()


def _subject(job: Job, world: World) -> str:
    if job.subject:
        return job.subject
    if job.phase:
        params = world.params_of(job.step) | {"phase": job.phase.number, "title": job.phase.title, "step": job.step.id}
        said = job.step.commit or ("{step}: {title}" if job.phase.number == "all" else "Phase {phase}: {title}")
        return keys.substitute(said, params)
    names = ", ".join(job.step.makes) or "what had to be mended"
    return keys.substitute(job.step.commit, world.params_of(job.step)) if job.step.commit else f"{job.step.id}: {names}"


def _one_line(subject: str) -> str:
    """A subject that any tool shows as it is: one line, single blanks, nothing invisible."""
    plain = "".join(char if char.isprintable() else " " for char in subject)
    return " ".join(plain.split())[:120].rstrip()


def _message(world: World, subject: str, step: str, key: str, phase: str = "") -> str:
    lines = [_one_line(subject) or _one_line(f"{step} of {world.run.name}"), "", f"Doflow-Run: {world.run.name}"]
    lines += [f"Doflow-Step: {step}"] if step else []
    lines += [f"Doflow-Phase: {phase}"] if phase else []
    lines += [f"Doflow-Key: {key}"] if key else []
    if world.run.issue:
        lines.append(f"Doflow-Issue: {' '.join(world.run.issue.split())}")
    return "\n".join(lines) + "\n"
