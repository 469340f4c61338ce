"""`doflow reject`: the note becomes part of the step's key and of its next prompt."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import decisions
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
        commit = decisions.commit_decision(work, f"Reject {step.id}: {note}", (), step.id)
        decisions.mark_paused(work, f"{step.id} was rejected: {note}")
        words = f"rejected {step.id}; its agent gets your note in the next run"
        told = f"{words}\n{_edit(step, edited, context)}continue with:\n  {decisions.continue_command(context)}"
        return decisions.print_result(args, told, run=context.run.name, step=step.id, rejected=True, note=held,
                             edited=list(edited), commit=commit)  # fmt: skip


def _step(work: ActiveRun, said: str, note: str) -> Step:
    context = work.context
    _phase(work, said)
    step = decisions.find_step(work, said)
    if step.kind == "gate":
        maker = gate.maker(step, context)
        hint = f'doflow reject {maker.id if maker else "STEP"} --note "{note}"'
        raise UsageError(f"{step.id} is a gate; reject the step that made what it shows", hint)
    if step.kind in gate.NOTELESS:
        who = gate.NOTELESS[step.kind]
        hint = f"edit its inputs and run again, or force it: {decisions.continue_command(context)} --force={step.id}"
        hint = _instead(step, "", context) if step.kind == "implement" else hint
        raise UsageError(f"{step.id} {who}, so a note has no reader", hint)
    if not any(context.files.digest(context.files.path(made)) for made in step.makes):
        names = ", ".join(context.files.path(made) for made in step.makes) or "an artifact"
        raise UsageError(f"nothing to reject yet: {step.id} has not made {names}", decisions.continue_command(context))
    return step


def _phase(work: ActiveRun, said: str) -> None:
    """Raise for a phase: its agent works from the task list and gets no note."""
    bare = said.removeprefix(f"{work.context.flow.name}:")
    name, _, number = bare.partition(":")
    step = work.context.flow.step(name)
    if number and step is not None and step.kind == "implement":
        raise UsageError(f"{bare} is a phase, and its agent gets no note", _instead(step, number, work.context))


def _instead(step: Step, number: str, context: RunContext) -> str:
    what = "its tasks in " if number else ""
    return (
        f"edit {what}{context.phases(step)}, then: {decisions.continue_command(context)}   or   "
        f"doflow reset {step.id}:{number or 'N'}   runs it and the phases after it again"
    )


def _worded(step: Step, note: str, context: RunContext) -> str:
    """The note; extended if the last result was made with the same note, so that the step is out of date again."""
    record = context.record.steps.get(step.id)
    used = record is not None and record.parts.get("note") == fingerprint.short_hash(note)
    return f"{note}\n\n(This was said before, and the result still does not do it.)" if used else note


def _edit(step: Step, edited: tuple[str, ...], context: RunContext) -> str:
    if not edited:
        return ""
    go = decisions.continue_command(context)
    return (
        f"{', '.join(edited)} has manual edits, so the next run pauses instead of changing it:\n"
        f"  {go} --force={step.id}   lets the agent revise it   or   doflow adopt {step.id}   keeps your edits\n"
    )
