"""`doflow reject`: the note becomes part of the step's key and of its next prompt."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import decisions, next_command
from doflow.engine.jobs import commit
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import gate
from doflow.flow.model import Step
from doflow.runs import fingerprint, freshness
from doflow.runs.context import RunContext
from doflow.util.errors import UsageError

ABOUT = "reject a step's result with a note: its agent revises it in the next run"
EXAMPLES = """\
  doflow reject plan --note "too much at once: leave the mobile app out"
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help="the step to reject")
    parser.add_argument("--note", required=True, help="what is wrong, for the agent")
    decisions.add_options(parser)


def reject(args: Namespace) -> int:
    note = args.note.strip()
    if not note:
        hint = f'doflow reject {args.step} --note "…"'
        raise UsageError("the note is empty: the agent would not know what to change", hint)
    with decisions.open_run(args.run) as (command, work):
        step = _step(work, args.step, note)
        context = work.context
        edited = freshness.manually_edited_files(step, context)
        command.session.begin(work)
        held = _worded(step, note, context)
        context.record.reject(step.id, held)
        context.events.add("rejected", step=step.id, note=held, by=decisions.git_user_name(context))
        data = {"step": step.id, "rejected": True, "note": held, "edited": list(edited)}
        data["commit"] = commit.commit_lock(context, f"Reject {step.id}: {note}", (), step.id)
        message = f"rejected {step.id}; its agent gets your note in the next run"
        if edited:
            force = f"{next_command.continue_command(context)} --force={step.id}   lets the agent revise it"
            message += f"\n{', '.join(edited)} has manual edits, so the next run pauses instead of changing it:"
            message += f"\n  {force}   or   doflow adopt {step.id}   keeps your edits"
        return decisions.conclude(args, work, f"{step.id} was rejected: {note}", message, **data)


def _step(work: ActiveRun, name: str, note: str) -> Step:
    context = work.context
    bare = name.removeprefix(f"{context.flow.name}:")
    owner, _, number = bare.partition(":")
    phased = context.flow.step(owner)
    if number and phased is not None and phased.kind == "implement":  # its agent works from the task list
        raise UsageError(f"{bare} is a phase, and its agent gets no note", _instead(phased, number, context))
    step = decisions.find_step(work, name)
    go = next_command.continue_command(context)
    if step.kind == "gate":
        maker = gate.maker(step, context)
        hint = f'doflow reject {maker.id if maker else "STEP"} --note "{note}"'
        raise UsageError(f"{step.id} is a gate; reject the step that made what it shows", hint)
    if step.kind in gate.NOTELESS:
        hint = f"edit its inputs and run again, or force it: {go} --force={step.id}"
        hint = _instead(step, "", context) if step.kind == "implement" else hint
        raise UsageError(f"{step.id} {gate.NOTELESS[step.kind]}, so a note has no reader", hint)
    if not any(context.files.digest(context.files.path(made)) for made in step.makes):
        names = ", ".join(context.files.path(made) for made in step.makes) or "an artifact"
        raise UsageError(f"nothing to reject yet: {step.id} has not made {names}", go)
    return step


def _instead(step: Step, number: str, context: RunContext) -> str:
    edit = f"edit {'its tasks in ' if number else ''}{context.phases(step)}"
    reset = f"doflow reset {step.id}:{number or 'N'}   runs it and the phases after it again"
    return f"{edit}, then: {next_command.continue_command(context)}   or   {reset}"


def _worded(step: Step, note: str, context: RunContext) -> str:
    """The note; extended if the last result was made with the same note, so that the step is out of date again."""
    record = context.record.steps.get(step.id)
    used = record is not None and record.parts.get("note") == fingerprint.short_hash(note)
    return f"{note}\n\n(This was said before, and the result still does not do it.)" if used else note
