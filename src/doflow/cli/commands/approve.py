"""`doflow approve`: approve what a gate shows; the approval is bound to its exact content."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import decisions, next_command, step_status
from doflow.engine.jobs import commit
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
        status = step_status.load_state(context.root, context.run.name).get("status")
        if held is None or not again:
            held = Approval(seen, decisions.git_user_name(context), args.note, timestamps.now())
            context.record.approve(step.id, held)
            context.events.add("approved", step=step.id, shown=seen, by=held.by, note=held.note)
        made = [context.files.path(name) for name in step.makes]  # committed with the approval, with manual edits
        paths = tuple(path for path in made if context.files.digest(path))
        data = {"step": step.id, "approved": True, "again": again, "by": held.by, "note": held.note}
        data["commit"] = commit.commit_lock(context, f"Approve {step.id}", paths, step.id)
        reason = f"{step.id} is approved" if status != "completed" else ""
        message = f"{step.id} was already approved by {held.by} at {held.at}" if again else f"approved {step.id}"
        shown = gate.shown_files(step, context)
        return decisions.conclude(args, work, reason, f"{message}: {shown}" if shown else message, **data)


def _step(work: ActiveRun, name: str) -> Step:
    """The step whose gate can be approved now."""
    context = work.context
    if not name:
        return _waiting(context)
    step = decisions.find_step(work, name)
    hint = f"`gate: Approve it?` on the step in {context.flow.file or 'the flow'} makes one"
    decisions.require_gate(step, context, hint)
    active = context.order.active()
    if step.id not in active:
        raise UsageError(f"{step.id} is not part of this run (its steps: {', '.join(active)})", "doflow status")
    lines = step_status.list_lines(context)
    if any(line.step == step.id and line.state not in _DECIDABLE for line in lines):
        ahead = next(line for line in lines if line.state not in step_status.SETTLED)
        words = f"{ahead.name}: {'; '.join(ahead.reasons)}"
        go = next_command.continue_command(context)
        raise UsageError(f"the gate of {step.id} has not been reached ({words})", go)
    return step


def _waiting(context: RunContext) -> Step:
    asked = [line.step for line in step_status.list_lines(context) if line.role == "gate" and line.state == "asks"]
    found = [step for name in asked if (step := context.flow.step(name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several gates are waiting: {', '.join(asked)}", f"doflow approve {found[0].id}")
    go = next_command.continue_command(context)
    raise UsageError(f"no gate of run {context.run.name} is waiting", f"{go}   or   doflow status")
