"""`doflow approve`: approve what a gate shows; the approval is bound to its exact content."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import decisions, step_status
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import gate
from doflow.flow.model import Step
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Approval
from doflow.util import timestamps
from doflow.util.errors import UsageError

ABOUT = "approve a gate: valid as long as the approved files do not change"
EXAMPLES = """\
  doflow approve                  the waiting gate
  doflow approve plan             the gate of this step
  doflow approve plan --note "good, mind the deadline"
"""
_DECIDABLE = step_status.SETTLED | {"asks"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", nargs="?", default="", metavar="STEP", help="the step (default: the waiting one)")
    parser.add_argument("--note", default="", help="stored with the approval in doflow.lock")
    decisions.add_options(parser)


def approve(args: Namespace) -> int:
    with decisions.open_run(args.run) as (command, work):
        step = _step(work, args.step)
        context = work.context
        seen = gate.shown_digest(step, context)
        held = context.record.approvals.get(step.id)
        again = held is not None and held.digest == seen
        command.session.begin(work)
        was = decisions.read_status(context)
        if held is None or not again:
            held = Approval(seen, decisions.git_user_name(context), args.note, timestamps.now())
            context.record.approve(step.id, held)
            context.events.add("approved", step=step.id, shown=seen, by=held.by, note=held.note)
        commit = decisions.commit_decision(work, f"Approve {step.id}", _paths(step, context), step.id)
        if was != "completed":
            decisions.mark_paused(work, f"{step.id} is approved")
        words = f"{step.id} was already approved by {held.by} at {held.at}" if again else f"approved {step.id}"
        told = f"{words}{_shown(step, context)}\ncontinue with:\n  {decisions.continue_command(context)}"
        return decisions.print_result(args, told, run=context.run.name, step=step.id, approved=True, again=again, by=held.by,
                             note=held.note, commit=commit)  # fmt: skip


def _step(work: ActiveRun, said: str) -> Step:
    """The step whose gate can be approved now."""
    context = work.context
    if not said:
        return _waiting(context)
    step = decisions.find_step(work, said)
    if not decisions.has_gate(step, context):
        gates = ", ".join(other.id for other in context.flow.steps if decisions.has_gate(other, context)) or "none"
        hint = f"`gate: Approve it?` on the step in {context.flow.file or 'the flow'} makes one"
        raise UsageError(f"{step.id} has no gate (steps with one: {gates})", hint)
    if step.id not in context.order.active():
        raise UsageError(
            f"{step.id} is not part of this run (its steps: {', '.join(context.order.active())})", "doflow status"
        )
    lines = step_status.list_lines(context)
    if any(line.step == step.id and line.state not in _DECIDABLE for line in lines):
        ahead = next(line for line in lines if line.state not in step_status.SETTLED)
        words = f"{ahead.name}: {'; '.join(ahead.reasons)}"
        raise UsageError(f"the gate of {step.id} has not been reached ({words})", decisions.continue_command(context))
    return step


def _waiting(context: RunContext) -> Step:
    asked = [line.step for line in step_status.list_lines(context) if line.role == "gate" and line.state == "asks"]
    found = [step for name in asked if (step := context.flow.step(name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several gates are waiting: {', '.join(asked)}", f"doflow approve {found[0].id}")
    raise UsageError(
        f"no gate of run {context.run.name} is waiting", f"{decisions.continue_command(context)}   or   doflow status"
    )


def _paths(step: Step, context: RunContext) -> tuple[str, ...]:
    """The approved files, committed with the approval, including manual edits."""
    return tuple(path for said in step.makes if context.files.digest(path := context.files.path(said)))


def _shown(step: Step, context: RunContext) -> str:
    paths = gate.shown_files(step, context)
    return f": {paths}" if paths else ""
