"""Pauses for the user: a gate waits for approval, a clarification for answers. Neither passes by itself."""

from __future__ import annotations

from doflow.engine.jobs import commit
from doflow.flow import markdown, plan
from doflow.flow.model import Outcome, Status, Step
from doflow.git import history
from doflow.runs import fingerprint, freshness, next_steps, run_record
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Approval
from doflow.util import atomic_files, timestamps
from doflow.util.hints import Next

_MANY = 6
_LINES = 40
MARK = "put one of them on its own line, at the end"
#: kinds of steps without an agent that reads a note
NOTELESS = {
    "implement": "is done in phases", "shell": "is done by a command", "review": "is a review",
    "install": "is done by doflow itself", "session": "is a separate session",
}  # fmt: skip


def is_approved(step: Step, context: RunContext) -> bool:
    """Is the current content approved?"""
    held = context.record.approvals.get(step.id)
    return held is not None and held.digest in (shown_digest(step, context), _raw_digest(step, context))


def shown_digest(step: Step, context: RunContext) -> str:
    """The digest of what the user is asked to approve: an approval is bound to it. Ticked boxes are progress."""
    seen = [[path, fingerprint.content_digest(path, context.files)] for path in _material(step, context)]
    if not seen:  # no files to show: the approval is of the steps done
        names = [step.id] if step.kind != "gate" else list(context.order.before(step.id))
        seen = [_done(name, context) for name in names if name in context.record.steps]
    return fingerprint.short_hash(seen)


def _raw_digest(step: Step, context: RunContext) -> str:
    """The same over all bytes, as 0.1.0 recorded approvals."""
    return fingerprint.short_hash([[path, context.files.digest(path)] for path in _material(step, context)])


def has_gate(step: Step, context: RunContext) -> bool:
    return step.kind == "gate" or bool(plan.gate_text(step, context.settings))


def open_gates(context: RunContext, before: str = "") -> tuple[Step, ...]:
    """The gates without a valid approval that this step comes after ('' = all), except for those it may pass first."""
    if context.frozen:
        return ()
    names = context.order.upstream(before) if before else {*context.order.active()}
    steps = [found for name in context.order.active() if name in names and (found := context.flow.step(name))]
    gates = [step for step in steps if has_gate(step, context) and not is_approved(step, context)]
    return tuple(step for step in gates if not before or unfinished_reviser(step, context) != before)


def unfinished_reviser(step: Step, context: RunContext) -> str:
    """The review that has changed approved content and is not done: it ends first, then the gate asks again. '' = none."""
    if step.id not in context.record.approvals or is_approved(step, context):
        return ""
    paths = [path for path in _material(step, context) if path in context.record.artifacts]
    if any(freshness.has_manual_edit(path, context) for path in paths):
        return ""
    revisers = {name for path in paths if (name := _reviser(path, context))}
    return next((name for name in context.order.active() if name in revisers and _unfinished(name, context)), "")


def _reviser(path: str, context: RunContext) -> str:
    """The review whose fixer wrote the current content of an artifact; '' = none."""
    now, held = context.files.digest(path), context.record.artifacts[path]
    jobs = [job for job, entry in context.record.returned.items() if entry.get("files", {}).get(path) == now]
    jobs += [held.author] if held.digest == now else []
    names = [job.partition(":")[0] for job in jobs if ":" in job]
    return next((name for name in names if (found := context.flow.step(name)) and found.kind == "review"), "")


def _unfinished(review: str, context: RunContext) -> bool:
    record, entries = context.record.steps.get(review), context.record.review(review)
    return record is None or bool(entries and entries[0]["at"] > record.at)


def _done(name: str, context: RunContext) -> list[str]:
    """The name and key of a step; for phases that ran again with the same key also the marker."""
    record, step = context.record.steps[name], context.flow.step(name)
    again = step is not None and step.kind == "implement" and record.marker not in ("", record.key[:16])
    return [name, record.key, record.marker] if again else [name, record.key]


def ask_approval(step: Step, context: RunContext) -> Outcome:
    """Ask, unless the current content is approved. If other content was, the question comes with the changes since then."""
    if is_approved(step, context):
        return Outcome(Status.DONE)
    if context.settings.auto_approve or context.options.auto_approve:
        seen = shown_digest(step, context)
        with context.guard:
            context.record.approve(step.id, Approval(seen, run_record.AUTO, "", timestamps.now()))
            context.record.mark_uncommitted(step.id)
        context.events.add("approved", step=step.id, by=run_record.AUTO, shown=seen)
        return Outcome(Status.DONE)
    reason = question(step, context)
    steps = (*approval_commands(step, context), next_steps.resume(context, link="then"))
    hint = next_steps.event_fields("", steps, context)
    changes = changes_since_approval(step, context)
    more = {"changes": changes} if changes else {}
    context.events.add("gate", step=step.id, message=reason, **hint, **more, shown=shown_digest(step, context))
    shown = "".join(f"\n    {line}" for line in changes.splitlines()[:_LINES])
    left = len(changes.splitlines()) - _LINES
    cut = f"\n    … {left} more lines: doflow why {step.id}.gate" if left > 0 else ""
    return Outcome(Status.PAUSED, f"{reason}{shown}{cut}", next=steps)


def question(step: Step, context: RunContext) -> str:
    """The question, with the files it is about, and whether other content of them was approved."""
    words, paths = plan.gate_text(step, context.settings), shown_files(step, context)
    words = f"{words} ({paths})" if paths else words
    held = context.record.approvals.get(step.id)
    if held is None:
        return words
    made = [path for path in _material(step, context) if path in context.record.artifacts]
    revisers = sorted({name for path in made if (name := _reviser(path, context))})
    by = f" by {', '.join(revisers)}" if revisers else ""
    return f"{words}\n  changed{by} since {held.by or 'someone'} approved it at {held.at}"


def changes_since_approval(step: Step, context: RunContext) -> str:
    """The diff from the approved content to the current one; '' = none was approved, or git does not have it."""
    held, paths = context.record.approvals.get(step.id), _material(step, context)
    if held is None or not paths:
        return ""
    names = [f"{context.prefix}{path}" for path in paths]
    for commit_id in history.file_commits(context.git, names):
        found = [history.file_at(context.git, commit_id, name) for name in names]
        then = [data if data is not None else b"" for data in found]
        digests = (
            [
                [path, fingerprint.content_digest(path, context.files, data)]
                for path, data in zip(paths, then, strict=True)
            ],
            [[path, atomic_files.data_digest(data)] for path, data in zip(paths, then, strict=True)],
        )
        if None not in found and held.digest in map(fingerprint.short_hash, digests):
            return history.file_changes(context.git, commit_id, names)
    return ""


def shown_files(step: Step, context: RunContext) -> str:
    """The files to approve, as text: those that exist, or are known from another branch."""
    paths, known = _material(step, context), context.record.artifacts
    if step.kind == "gate":
        paths = [path for path in paths if path in known or context.files.digest(path)]
    more = f" and {len(paths) - _MANY} more" if len(paths) > _MANY else ""
    return ", ".join(paths[:_MANY]) + more


def _material(step: Step, context: RunContext) -> list[str]:
    """The artifacts of the step; for a step of kind gate, what it reads."""
    said = [*_made(step, context), *(read.path for read in step.reads if step.kind == "gate")]
    return [path for one in said for path in context.files.expand(one)]


def approval_commands(step: Step, context: RunContext) -> tuple[Next, ...]:
    """The commands to approve and to reject. Only a step whose agent reads notes can be rejected."""
    approve, made_by = Next(("doflow", "approve", step.id)), maker(step, context)
    if made_by is None:
        return (approve,)
    if made_by.kind in NOTELESS:
        return approve, next_steps.resume(context, f"--force={made_by.id}", does="runs it again", link="or")
    name = f"{made_by.id}:ITEM" if made_by.foreach else made_by.id
    return approve, Next(("doflow", "reject", name, "--note", "…"), link="or")


def maker(step: Step, context: RunContext) -> Step | None:
    """The step to reject; for a step of kind gate, the last step that made what it shows."""
    if step.kind != "gate":
        return step
    shown = {read.path for read in step.reads}
    active = [found for name in context.order.active() if (found := context.flow.step(name))]
    return next((found for found in reversed(active) if shown & {*found.makes}), None)


def _made(step: Step, context: RunContext) -> tuple[str, ...]:
    """The artifacts of a step, or of all its items."""
    parts = context.items(step) if step.foreach else (step,)
    return tuple(said for part in parts for said in part.makes)


def open_questions(step: Step, context: RunContext) -> tuple[tuple[str, str], ...]:
    """The questions left in the step's artifacts, each with its file."""
    paths = [context.files.path(said) for said in _made(step, context)]
    return tuple((path, words) for path in paths for words in markdown.questions(context.files.text(path) or ""))


def ask_questions(step: Step, context: RunContext) -> Outcome:
    asked = open_questions(step, context)
    if not asked:
        return Outcome(Status.DONE)
    lines = "".join(f"\n    {number}. {words}" for number, (_, words) in enumerate(asked, 1))
    reason = f"{asked[0][0]} asks {len(asked)} question{'s' if len(asked) > 1 else ''}:{lines}"
    steps = (Next(("doflow", "answer")), next_steps.resume(context, link="then"))
    hint = next_steps.event_fields("", steps, context)
    context.events.add("clarification", step=step.id, message=reason, **hint, questions=[words for _, words in asked])
    return Outcome(Status.PAUSED, reason, next=steps)


def route(step: Step, context: RunContext) -> tuple[Outcome, str]:
    """The outcome and the marker of a routing step."""
    record = context.record.steps.get(step.id)
    marker = record.marker if record else ""
    rule = plan.find_route(step, marker)
    if rule is None:
        return _unmarked(step, context), ""
    if rule.variant:
        context.record.choose_variant(rule.variant)
    if rule.pause:
        steps = (next_steps.resume(context, f"--force={','.join(rule.again) or step.id}", does="asks again"),)
        hint = next_steps.event_fields("", steps, context)
        context.events.add("paused", step=step.id, message=rule.pause, **hint, marker=marker)
        return Outcome(Status.PAUSED, f"{marker}: {rule.pause}", next=steps), marker
    return Outcome(Status.DONE), marker


def describe_lost_marker(step: Step, context: RunContext) -> str:
    """A message if a manual edit removed the marker from the artifact of a routing step; else ''."""
    record = context.record.steps.get(step.id)
    if record is None or record.by.get("marker") != "artifact" or plan.find_route(step, record.marker):
        return ""
    names = ", ".join(context.files.path(said) for said in step.makes)
    found = commit.markers_in_artifact(step, context)
    if len(found) > 1:
        return f"{names} has your edits, but its markers disagree: {', '.join(f'`{marker}`' for marker in found)}"
    return f"{names} has your edits, but none of the markers {_wanted(step)} as its last line"


def _unmarked(step: Step, context: RunContext) -> Outcome:
    """No rule matches: always a failure."""
    edited = describe_lost_marker(step, context)
    if not edited:
        logs = Next(("doflow", "logs", step.id))
        again = next_steps.resume(context, f"--force={step.id}", link="then")
        return Outcome(Status.FAILED, f"{step.id} gave none of the markers {_wanted(step)}", next=(logs, again))
    steps = marker_commands(step.id, context)
    context.events.add("error", step=step.id, message=edited, **next_steps.event_fields(MARK, steps, context))
    return Outcome(Status.FAILED, edited, MARK, next=steps)


def marker_commands(step: str, context: RunContext) -> tuple[Next, ...]:
    """The commands after restoring a marker, or to run the step again."""
    again = next_steps.resume(context, f"--force={step}", link="or")
    return next_steps.resume(context, link="then"), again


def _wanted(step: Step) -> str:
    return ", ".join(f"`{route.when}`" for route in step.routes)
