"""Completing a job: write its record to the lock file, commit its files, log its end. Safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from doflow.engine.jobs import commit_hooks
from doflow.flow import backlog, markdown
from doflow.flow.model import Outcome, Status, Step
from doflow.git import commit, head_reader
from doflow.runs import event_log, fingerprint, freshness, jobs, lockfile
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.lockfile import Artifact, StepRecord
from doflow.util import atomic_files, timestamps
from doflow.util.errors import WorldError
from doflow.util.hints import Next


def complete_job(job: Job, context: RunContext, outcome: Outcome) -> Outcome:
    with context.guard:
        record, artifacts = _record(job, context, outcome)
        context.complete(job.name, record, artifacts)
        if not job.task and (job.last or (job.step.kind == "implement" and record.marker)):
            _whole(job, context, record)
        if job.phase and markdown.is_backlog(job.step.phases):
            artifacts |= update_backlog_statuses(job.step, context)
        context.record.remove_note(f"{job.step.id}.pending")
        try:
            commits = job.commits or job.name in context.record.returned
            commit = _committed(job, context, artifacts) if commits else ""
        except WorldError as error:
            _forget(job, context)
            kept = "the work is kept; fix this and run the same command: no agent is called again"
            return Outcome(Status.FAILED, f"{job.name} is done but not committed: {error.message}",
                           error.advice, held=True, next=(*error.next, Next(why=kept)))  # fmt: skip
        context.committed(commit)
        event = "phase_complete" if job.phase else "step_complete"
        loose = not commits
        context.events.add(
            event, event_log.LATER if loose else True, **job.where, record=record.plain(), loose=loose, commit=commit
        )
        if loose:
            context.record.mark_uncommitted(job.name)
        context.record.settle(job.name)
        if job.paid:
            jobs.store_inputs(job, context)
    return outcome


def phases_record(key: str, by: Mapping[str, str], at: str, again: Sequence[str] = ()) -> StepRecord:
    """The record of a whole implement step: steps after it run again when its phases do. `again`: the markers of phases
    that ran more than once with the same key."""
    return StepRecord(key, marker=fingerprint.short_hash([key, *again], 16) if again else key[:16], by=by, at=at)


def _whole(job: Job, context: RunContext, record: StepRecord) -> None:
    names = [f"{job.step.id}:{phase.number}" for phase, _ in freshness.phase_keys(job.step, context)]
    phases = [found for name in names if (found := context.record.steps.get(name))]
    if not job.last and len(phases) < len(names):
        return
    key = job.key.key if job.last else phases[-1].key
    again = [phase.marker for phase in phases if phase.marker]
    held = context.record.steps.get(job.step.id)
    if held is None or held.key != key or again:
        context.complete(job.step.id, phases_record(key, record.by, record.at, again), {})


def complete_group(context: RunContext, name: str) -> None:
    """Record a step over items as done when every item is; without a commit."""
    group = context.flow.step(name)
    assert group is not None
    with context.guard:
        records = [context.record.steps.get(item.id) for item in context.items(group)]
        keys = [record.key for record in records if record is not None]
        if len(keys) < len(records):
            return
        record = StepRecord(fingerprint.short_hash(keys, 64), by={}, at=timestamps.now())
        context.complete(name, record, {})
        context.record.mark_uncommitted(name)
        context.events.add("step_complete", step=name, record=record.plain(), loose=True)


def find_marker(job: Job, context: RunContext, text: str) -> str:
    """The marker of a routing step; '' = none, or several that disagree."""
    found = find_markers(job.step, context, text) if job.step.routes else ()
    return found[0] if len(found) == 1 else ""


def find_markers(step: Step, context: RunContext, text: str) -> tuple[str, ...]:
    """The markers in the artifacts of a routing step and at the end of its answer: more than one = they disagree.

    A command's output is not an answer: it counts only if its artifacts have no marker."""
    made = markers_in_artifact(step, context)
    if step.kind != "shell":
        return tuple(dict.fromkeys((*made, *markdown.read_markers(text, [route.when for route in step.routes]))))
    return made or markdown.read_markers(markdown.last_line(text), [route.when for route in step.routes])


def markers_in_artifact(step: Step, context: RunContext) -> tuple[str, ...]:
    """The markers in the artifacts of a routing step: more than one = they disagree."""
    wanted = [route.when for route in step.routes]
    texts = [context.files.text(context.files.path(said)) or "" for said in step.makes]
    if step.kind == "shell":
        texts = [markdown.last_line(text) for text in texts]
    return tuple(dict.fromkeys(found for text in texts for found in markdown.read_markers(text, wanted)))


def marker_problem(step: Step, found: Sequence[str]) -> str:
    """What is wrong with the markers of a routing step; '' = there is one."""
    if len(found) > 1:
        return f"the lines {' and '.join(f'`{marker}`' for marker in found)} disagree: it must end with exactly one of them"
    wanted = ", ".join(f"`{route.when}`" for route in step.routes)
    return "" if found else f"none of the lines {wanted} is the last line of the artifact or of the answer"


def commit_lock(context: RunContext, subject: str, paths: tuple[str, ...] = (), step: str = "") -> str:
    """Commit the lock file with related files: approvals, answers, adopted edits, the end of a run."""
    with context.guard:
        context.write_lock()
        if not context.settings.commit_artifacts:
            return ""
        given = (*context.given, lockfile.NAME, *(path for path, _ in context.flow.inputs))
        named = dict.fromkeys((*paths, *(f"{context.run.dir}/{name}" for name in given)))
        return _commit(context, tuple(named), _message(context, subject, step, ""), {})


def _record(job: Job, context: RunContext, outcome: Outcome) -> tuple[StepRecord, dict[str, Artifact]]:
    made = {path: context.files.digest(path) for path in job.makes}
    by = freshness.current_settings(job.step, context)
    if outcome.agent:  # another agent replaced the configured one
        by |= {"agent": outcome.agent, "for": by.get("agent", "")}
    if outcome.model:
        by["model"] = outcome.model
    spent = context.record.spent.get(job.step.id.partition(":")[0]) if job.phase is None else None
    if spent and spent.usd:
        by["usd"] = f"{spent.usd:.4f}"
    elif outcome.usage and outcome.usage.usd is not None:
        by["usd"] = f"{outcome.usage.usd:.4f}"
    if job.step.routes and markers_in_artifact(job.step, context):
        by["marker"] = "artifact"
    at = timestamps.now()
    returned = context.record.returned.get(job.name, {})
    marker = outcome.marker or find_marker(job, context, outcome.text)
    if job.phase and returned.get(
        "again"
    ):  # done before with the same key: the steps after it must see that its code is new
        marker = f"again {at}"
    reads = dict(job.key.reads) or _NONE
    record = StepRecord(job.key.key, _one(job.key.parts), reads, made or _NONE, marker, _one(by), at)
    author = "agent" if job.paid else "command" if job.step.kind == "shell" else "doflow"
    artifacts = {path: Artifact(digest, author, job.name) for path, digest in made.items()}
    for path in returned.get("files", {}):
        held = context.record.artifacts.get(path)
        if held is not None and path not in made and held.digest != context.files.digest(path):
            artifacts[path] = Artifact(context.files.digest(path), job.name, held.step)
    return record, artifacts


_NONE: Mapping[str, str] = {}
_same: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}


def _one(values: Mapping[str, str]) -> Mapping[str, str]:
    """Share equal small mappings: a long run has thousands of identical ones."""
    return _same.setdefault(tuple(values.items()), values) if len(values) < 2 else values


def _committed(job: Job, context: RunContext, artifacts: Mapping[str, Artifact]) -> str:
    entry = context.record.returned.get(job.name, {})
    intent = context.record.intents.get(job.name)
    context.write_lock(sync=not context.settings.commit_artifacts)
    if not context.settings.commit_artifacts and not job.phase:
        return ""
    if intent is not None and commit.is_adopted(context.git, intent["base"], intent["new"]):
        return str(intent["new"])
    paths = {*entry.get("files", {}), *artifacts, f"{context.run.dir}/{lockfile.NAME}"}
    paths |= {f"{context.run.dir}/{name}" for name in (*context.given, *(path for path, _ in context.flow.inputs))}
    number = job.phase.number if job.phase else ""
    message = _message(context, _subject(job, context), job.step.id, job.key.key, number, job.body)
    verifies = context.settings.verify and job.phase and job.step.kind == "implement"
    verify = commit_hooks.make_commit_verifier(job, context) if verifies else None
    made = _commit(context, tuple(sorted(paths)), message, job.where, job.paid, verify, entry.get("contents", {}))
    if verify is not None and made:
        commit_hooks.run_post_commit(job, context)
    return made


def _commit(
    context: RunContext, paths: tuple[str, ...], message: str, where: Mapping[str, str], paid: bool = True,
    verify: Callable[[str, str], str] | None = None, contents: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:  # fmt: skip
    def ready(base: str, new: str) -> None:
        if where:
            context.events.add("intent", paid, **where, base=base, new=new)

    now = head_reader.find_head(str(context.root)).branch
    if now != context.run.branch and not context.options.reopen:
        raise WorldError(
            f"the branch was switched from {context.run.branch} to {now or 'a detached HEAD'} while {context.run.name} ran",
            f"git switch {context.run.branch}",
        )
    named = [f"{context.prefix}{path}" for path in (*paths, *context.own)]
    given = {f"{context.prefix}{path}": entry for path, entry in contents.items()}
    return commit.commit(context.git, named, message, ready, verify=verify, contents=given)


def _forget(job: Job, context: RunContext) -> None:
    """Remove the record of a step that could not be committed; its agent's result is kept (`returned`)."""
    context.record.remove_step(job.name)
    if job.last:
        context.record.remove_step(job.step.id)
    with suppress(WorldError):  # the disk itself may be the problem
        context.write_lock()


def _subject(job: Job, context: RunContext) -> str:
    if job.subject:
        return job.subject
    params = context.params_of(job.step)
    if job.phase:
        number = job.phase.part_of or job.phase.number
        params = params | {"phase": number, "title": job.phase.title, "step": job.step.id}
        usual = "{step}: {title}" if number == "all" else "Phase {phase}: {title}"
        return fingerprint.substitute(job.step.commit or usual, params)
    if job.step.commit:
        return fingerprint.substitute(job.step.commit, params)
    otherwise = "" if job.step.repair else job.step.about
    return f"{job.step.id}: {', '.join(job.step.makes) or otherwise or 'fix failing check'}"


def _one_line(subject: str) -> str:
    """A subject that any tool shows as it is: one line, single blanks, nothing invisible."""
    printable = "".join(char if char.isprintable() else " " for char in subject)
    return " ".join(printable.split())[:120].rstrip()


def _message(context: RunContext, subject: str, step: str, key: str, phase: str = "", body: str = "") -> str:
    lines = [_one_line(subject) or _one_line(f"{step} of {context.run.name}"), ""]
    lines += [body.strip(), ""] if body.strip() else []
    lines += [f"Doflow-Run: {context.run.name}"]
    lines += [f"Doflow-Step: {step}"] if step else []
    lines += [f"Doflow-Phase: {phase}"] if phase else []
    lines += [f"Doflow-Key: {key}"] if key else []
    lines += [f"Doflow-Issue: {' '.join(context.run.issue.split())}"] if context.run.issue else []
    return "\n".join(lines) + "\n"


def update_backlog_statuses(step: Step, context: RunContext, number: str = "", status: str = "") -> dict[str, Artifact]:
    """Update the statuses in a backlog, one of them to `status`; returns the file as an artifact for the lock file."""
    path = context.phases(step)
    text = context.files.text(path) if markdown.is_backlog(path) else None
    if text is None:
        return {}
    new = backlog.with_statuses(text, _known(step, context, text, path) | ({number: status} if number else {}))
    if new != text:
        atomic_files.write_file(str(context.root / path), new.encode("utf-8", "surrogateescape"))
    held = context.record.artifacts.get(path) or Artifact("", "doflow", step.id)
    found = {path: Artifact(context.files.digest(path), held.author, held.step)}
    context.record.add_artifacts(found)
    return found


def recognise_backlog(context: RunContext) -> None:
    """After a crash between file and lock: a backlog that differs from its draft only in statuses was written by doflow."""
    for step in context.flow.steps:
        path = context.files.path(step.makes[0]) if step.kind == "install" else ""
        held = context.record.artifacts.get(path) if markdown.is_backlog(path) else None
        if held is None or held.author == "person" or held.digest == context.files.digest(path):
            continue
        text, draft = context.files.text(path), context.files.text(context.files.path(step.reads[0].path))
        if text and draft and backlog.without_statuses(text) == backlog.without_statuses(draft):
            context.record.add_artifacts({path: Artifact(context.files.digest(path), held.author, held.step)})


def _known(step: Step, context: RunContext, text: str, path: str) -> dict[str, str]:
    """Complete: has a record. Failed: until it is tried again. Ready: every step over the same items is done."""
    done = [
        {dict(item.params)["item_id"] for item in context.items(other) if item.id in context.record.steps}
        for other in context.flow.steps
        if other.foreach == step.phases
    ]
    ready = set.intersection(*done) if done else set()
    found: dict[str, str] = {}
    for item in backlog.subtasks(backlog.parse_backlog(text, path)):
        name, now = item["id"], item["status"]
        if f"{step.id}:{name}" in context.record.steps:
            found[name] = backlog.COMPLETE
        elif now in (backlog.FAILED, "Obsolete"):
            found[name] = now
        else:
            found[name] = backlog.READY if name in ready else backlog.PLANNED
    return found
