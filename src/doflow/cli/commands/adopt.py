"""`doflow adopt`: use the current files as the step's result, as if its agent had made them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli import decisions, next_command, step_status
from doflow.cli.context import CommandContext
from doflow.engine import checks
from doflow.engine.jobs import adoption, commit
from doflow.engine.lifecycle.session import ActiveRun
from doflow.flow import plan
from doflow.flow.model import Step
from doflow.guard.quarantine import Quarantine
from doflow.runs import freshness
from doflow.runs.context import RunContext
from doflow.util import state_folder
from doflow.util.errors import UsageError

ABOUT = "keep the current files as a step's result: your edits, your own file, or the files of a refused step"
EXAMPLES = """\
  doflow adopt plan               keep plan.md with your edits; the step is done
  doflow adopt implement:2        one phase, with its current files
  doflow adopt test --anyway      mark a step as done that makes no file or fails its checks
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help="the step to mark as done")
    parser.add_argument("--anyway", action="store_true", help="even if its checks fail")
    decisions.add_options(parser)


def adopt(args: Namespace) -> int:
    with decisions.open_run(args.run) as (command, work):
        context = work.context
        if work.back:
            _not_what_was_seen(work, args.step)
        phase = _phase(work, args.step)
        name = f"{phase[0].id}:{phase[1]}" if phase else decisions.find_step(work, args.step).id
        if not args.anyway or name in context.record.returned:
            work.fence.layered.release(name)
        if phase is not None:
            return _one(args, command, work, *phase)
        step = _step(work, args.step, args.anyway)
        if _settled(step, context) and not (args.anyway and _faults(step, context)):
            message = f"{step.id} is up to date and has no edits: nothing to adopt"
            return decisions.print_result(args, context, message, step=step.id, adopted=[])
        if not args.anyway:
            _contract(step, context)
        undone = _undone(step, context)
        command.session.begin(work)
        paths = adoption.adopt_step(context, step.id, "adopted by the user")
        decisions.drop_doit_rows(context, (step.id,))
        what = ", ".join((*paths, *adoption.review_report(step, context))) or undone or "it makes no file"
        reason, message = f"{step.id} was adopted", f"adopted {step.id}: {what}"
        return decisions.conclude(args, work, reason, message, step=step.id, adopted=list(paths))


def _not_what_was_seen(work: ActiveRun, name: str) -> None:
    """Raise if recovery just moved a killed agent's partial files to quarantine: the user saw those, so nothing is adopted."""
    context, step = work.context, decisions.find_step(work, name.partition(":")[0] if _phase(work, name) else name)
    aside = [path for made in step.makes if (path := context.files.path(made)) in work.back]
    restored = [path for path in aside if context.files.digest(path)]
    started = any(entry["step"] == step.id for entry in context.record.started.values())
    if not aside and (step.makes or not started):
        return
    go = f"{next_command.continue_command(context)}   runs the step   or   "
    if aside and not restored:  # the partial artifact did not exist before: it can be restored, and then adopted
        kept = Quarantine(context.root / state_folder.QUARANTINE).entries()
        ids = [entry.id[:8] for path in aside for entry in kept[::-1] if entry.path == path]
        back = f"doflow quarantine restore {ids[0]}" if ids else "doflow quarantine list"
        message = f"{step.id} was killed; its partial {', '.join(aside)} is in quarantine: nothing was adopted"
        raise UsageError(message, f"{go}{back}   restores it; then: doflow adopt {step.id}")
    what = f"{', '.join(restored)} was restored" if restored else "the files were restored"
    message = f"{step.id} was killed; its partial result is in quarantine, and {what}: nothing was adopted"
    again = f"or   doflow adopt {name}   again, to keep the current files"
    raise UsageError(message, f"{go}doflow quarantine list   shows the partial result   {again}")


def _phase(work: ActiveRun, name: str) -> tuple[Step, str] | None:
    """The step and number of a phase such as `implement:2`."""
    bare, _, number = name.removeprefix(f"{work.context.flow.name}:").partition(":")
    step = work.context.flow.step(bare)
    if not number or step is None or step.kind != "implement":
        return None
    known = [phase.number for phase, _ in freshness.phase_keys(step, work.context)]
    if number not in known:
        raise UsageError(f"{step.id} has no phase {number} (it has: {', '.join(known) or 'none'})", "doflow status")
    return step, number


def _one(args: Namespace, command: CommandContext, work: ActiveRun, step: Step, number: str) -> int:
    context, name = work.context, f"{step.id}:{number}"
    line = next(line for line in step_status.list_lines(context) if line.name == name)
    if not line.reasons:
        return decisions.print_result(args, context, f"{name} is up to date: nothing to adopt", step=name, adopted=[])
    if name not in context.record.returned and not args.anyway:
        hint = f"doflow adopt {name} --anyway   marks it as done"
        raise UsageError(f"{name} has not run yet, so there is nothing to adopt", hint)
    command.session.begin(work)
    paths = adoption.adopt_phase(context, step, number, "adopted by the user")
    decisions.drop_doit_rows(context, (name,))
    message = f"adopted {name}: {', '.join(paths) or 'no file'}"
    return decisions.conclude(args, work, f"{name} was adopted", message, step=name, adopted=list(paths))


def _undone(step: Step, context: RunContext) -> str:
    """A message about phases that are marked as done without having run."""
    names = [f"{step.id}:{phase.number}" for phase, _ in freshness.phase_keys(step, context)] if step.phases else []
    left = [name for name in names if name not in context.record.steps]
    return f"{', '.join(left)} marked as done without having run" if left else ""


def _step(work: ActiveRun, name: str, anyway: bool) -> Step:
    step = decisions.find_step(work, name)
    if step.kind == "gate":
        raise UsageError(f"{step.id} is a gate and makes no files", f"doflow approve {step.id}")
    if not step.makes and not anyway and not adoption.review_report(step, work.context):
        undone = _undone(step, work.context)
        hint = f"doflow adopt {step.id} --anyway   marks it as done" + (f" ({undone})" if undone else "")
        hint += f"; one phase alone: doflow adopt {step.id}:N" if step.phases else ""
        raise UsageError(f"{step.id} makes no files, so there is nothing to adopt", hint)
    return step


def _settled(step: Step, context: RunContext) -> bool:
    lines = [line for line in step_status.list_lines(context) if line.role in step_status.WORK]
    own = [line for line in lines if step.id in (line.step, line.name)]
    return bool(own) and not any(line.reasons or line.edited for line in own)


def _faults(step: Step, context: RunContext) -> str:
    """What is wrong with the task lists of an up-to-date step: the flow may ask for another form than when they were made."""
    return (
        checks.check_tasks(step, [context.files.path(made) for made in step.makes], context) if step.check.tasks else ""
    )


def _contract(step: Step, context: RunContext) -> None:
    paths = tuple(context.files.path(made) for made in step.makes)
    trouble = checks.problems(step, paths, context)
    if not trouble and step.routes:
        record = context.record.steps.get(step.id)
        said = record.marker if record and plan.find_route(step, record.marker) else ""
        trouble = commit.marker_problem(step, commit.markers_in_artifact(step, context) or ((said,) if said else ()))
    if trouble:
        missing = [path for path in paths if not context.files.digest(path)]
        hint = f"fix it and repeat, or adopt it anyway: doflow adopt {step.id} --anyway"
        if missing:
            hint = f"write {missing[0]} and repeat, or let the agent write it: {context.resume_command}"
        raise UsageError(f"{step.id} failed its checks: {trouble}", hint)
