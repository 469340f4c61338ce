"""`doflow reset`: mark a step and the steps after it as not done. Artifacts stay; the next run revises them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from doflow.cli import decisions
from doflow.cli.context import CommandContext
from doflow.engine.jobs import commit
from doflow.engine.lifecycle.session import ActiveRun
from doflow.flow.model import Step
from doflow.runs import freshness
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Artifact
from doflow.util.errors import UsageError

ABOUT = "mark a step (and the steps after it) as not done; files are kept, and the next run revises them"
EXAMPLES = """\
  doflow reset plan               the plan and all steps after it
  doflow reset implement:2        from phase 2 on
  doflow reset plan.gate          only your approval: the gate asks again, nothing else changes
  doflow reset --yes              the whole run, without asking
"""


def arguments(parser: ArgumentParser) -> None:
    about = "the step, a phase and those after it (implement:2), an item, a gate (plan.gate); default: the whole run"
    parser.add_argument("step", nargs="?", default="", metavar="STEP", help=about)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    decisions.add_options(parser)


def reset(args: Namespace) -> int:
    with decisions.open_run(args.run) as (command, work):
        context = work.context
        if args.step.endswith(decisions.PAUSES):
            return _asks_again(args, command, work)
        first, phase = _meant(work, args.step)
        steps = _following(first.id, context) if first else tuple(step.id for step in context.flow.steps)
        names = _names(steps, first, phase, context)
        if not names and not any(name in context.record.approvals for name in steps):
            what = f"{args.step} and the steps after it" if first else f"run {context.run.name}"
            message = f"nothing of {what} is done: nothing to reset"
            return decisions.print_result(args, context, message, forgotten=[], commit="")
        if not args.yes:
            _agreed(names, args.step, context)
        command.session.begin(work)
        _forget(names, steps, context)
        decisions.drop_doit_rows(context, (*steps, *names))
        what = args.step or "everything"
        made = commit.commit_lock(context, f"Reset {what}", (), first.id if first else "")
        message = f"marked as not done: {', '.join(names) or what}; files are unchanged"
        return decisions.conclude(args, work, f"{what} was reset", message, forgotten=list(names), commit=made)


def _asks_again(args: Namespace, command: CommandContext, work: ActiveRun) -> int:
    """Withdraw the approval of a gate, and nothing else."""
    context, step = work.context, decisions.find_step(work, args.step)
    part = args.step.rpartition(".")[2]
    if part != "gate":
        what = "answers are in its artifact" if part == "clarify" else "route follows from its marker"
        hint = f"doflow reset {step.id}   resets the step and the steps after it"
        raise UsageError(f"{args.step} has no state of its own: its {what}", hint)
    decisions.require_gate(step, context, f"doflow reset {step.id}")
    if step.id not in context.record.approvals:
        message = f"{step.id} is not approved: nothing to withdraw"
        return decisions.print_result(args, context, message, forgotten=[], commit="")
    command.session.begin(work)
    context.record.withdraw_approval(step.id)
    context.events.add("reset", step=f"{step.id}.gate")
    made = commit.commit_lock(context, f"Withdraw approval of {step.id}", (), step.id)
    message = f"withdrew the approval of {step.id}: its gate asks again; all steps stay done"
    message += " (auto_approve is on: the next run approves it again)" if context.settings.auto_approve else ""
    reason = f"the approval of {step.id} was withdrawn"
    return decisions.conclude(args, work, reason, message, forgotten=[f"{step.id}.gate"], commit=made)


def _meant(work: ActiveRun, name: str) -> tuple[Step | None, str]:
    """The named step and phase; no step = the whole run."""
    if not name:
        return None, ""
    bare, _, phase = name.removeprefix(f"{work.context.flow.name}:").partition(":")
    step = decisions.find_step(work, bare)
    if phase:
        known = _parts(step, work.context)
        if phase not in known and f"{step.id}:{phase}" not in work.context.record.steps:
            raise UsageError(f"{step.id} has no part {phase} (it has: {', '.join(known) or 'none'})", "doflow status")
    return step, phase


def _parts(step: Step, context: RunContext) -> list[str]:
    """The phases or items of a step, in order."""
    if step.foreach:
        return [item.id.partition(":")[2] for item in context.items(step)]
    return [found.number for found, _ in freshness.phase_keys(step, context)] if step.kind == "implement" else []


def _following(name: str, context: RunContext) -> tuple[str, ...]:
    """The step and every active step that comes after it, directly or not."""
    found = {name}
    for other in context.order.active():
        if found.intersection(context.order.before(other)):
            found.add(other)
    return tuple(step.id for step in context.flow.steps if step.id in found)


def _names(steps: tuple[str, ...], first: Step | None, phase: str, context: RunContext) -> tuple[str, ...]:
    """The recorded names of these steps and their phases."""
    book = context.record
    known = dict.fromkeys((*book.steps, *book.returned, *book.started))
    spared: set[str] = set()
    if first is not None and phase:
        parts = _parts(first, context)
        before = parts[: parts.index(phase)] if phase in parts else parts
        spared = {f"{first.id}:{part}" for part in (parts if first.foreach else before) if part != phase}
    return tuple(name for name in known if name.partition(":")[0] in steps and name not in spared)


def _forget(names: tuple[str, ...], steps: tuple[str, ...], context: RunContext) -> None:
    book = context.record
    for name in names:
        step, _, phase = name.partition(":")
        for path, digest in book.returned.get(name, {}).get("files", {}).items():
            if digest and digest == context.files.digest(path):
                known = book.artifacts.get(path, Artifact(digest, "agent", name))
                book.add_artifacts({path: known})
        context.events.add("reset", step=step, **({"phase": phase} if phase else {}))
        context.forget_step(name)
    recorded = {name.partition(":")[0] for name in names}
    for name in steps:
        if book.withdraw_approval(name) and name not in recorded:
            context.events.add("reset", step=f"{name}.gate")
        found = context.flow.step(name)
        if found is not None and found.routes:
            book.choose_variant("")


def _agreed(names: tuple[str, ...], step: str, context: RunContext) -> None:
    command = " ".join(word for word in ("doflow reset", step, f"--run={context.run.name} --yes") if word)
    if not sys.stdin.isatty():
        raise UsageError(f"this would reset {', '.join(names)} of run {context.run.name}", f"to confirm: {command}")
    sys.stdout.write(f"Reset {', '.join(names)} of run {context.run.name}? Files are kept. [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was reset", f"to skip the question: {command}")
