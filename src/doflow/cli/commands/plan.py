"""`doflow plan`: a dry run that shows what would run and why, or the prompt of a step."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from doflow.agents import call
from doflow.cli import forecast, next_command, step_status
from doflow.cli.context import CommandContext
from doflow.cli.output import say, say_json, table, unknown_flow, warn
from doflow.cli.step_status import Line
from doflow.config import project
from doflow.engine.doit import tasks
from doflow.engine.lifecycle import resolve_run, start
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import agent, reviewers, shell
from doflow.flow import plan as plans
from doflow.flow.model import BY_AGENT, Step
from doflow.git import head_reader
from doflow.runs import catalogue, freshness
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.usage import Forecast
from doflow.util.errors import DoflowError, UsageError

ABOUT = "Show what would run, in order, and why. Nothing is run or written."
EXAMPLES = """\
  doflow plan                       the run of this branch
  doflow plan tiny --goal "…"       a new run
  doflow plan tiny --prompt plan    the exact prompt for the agent of `plan`"""

_PAID = ("runs", "may run")
_SUMS = {
    "runs": "to run", "may run": "perhaps", "pauses": "to wait for you", "fails": "to fail", "up to date": "up to date",
}  # fmt: skip


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("flow", nargs="?", default="", help="the flow (default: the flow of the run)")
    parser.add_argument("--run", default="", help="run name or number")
    parser.add_argument("--goal", default=None, help="what to build, as for doit FLOW")
    parser.add_argument("--prompt", default="", metavar="STEP", help="print only the prompt of this step")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def plan(args: Namespace) -> int:
    command = CommandContext()
    work = _work(command, args)
    if args.prompt:
        next_command.preview_recovery(work)
        return _prompt(work, args.prompt, args.json)
    lines, _ = next_command.preview_lines(work)
    context = work.context
    stops = _stops(command, context)
    verdicts = [_verdict(line, context) for line in lines]
    paid = [line for line, verdict in zip(lines, verdicts, strict=True) if verdict in _PAID]
    costs = forecast.forecast_steps(paid, context)
    if args.json:
        return _json(context, lines, stops, costs)
    new = " (a new run)" if context.run.fresh and not step_status.is_on_other_branch(context) else ""
    say(f"{context.flow.name}: {context.run.name}{new}, branch {context.run.branch}")
    priced = {name: forecast.format_forecast(found) for name, found in costs}
    _table(lines, context, priced if any(found.samples for _, found in costs) else None)
    for line in lines:
        if line.role == "step":
            _say_routes(line.name, context)
    counts = [f"{verdicts.count(verdict)} {words}" for verdict, words in _SUMS.items() if verdict in verdicts]
    say(", ".join(counts) if set(verdicts) != {"up to date"} else "nothing to run: everything is up to date")
    if costs:
        say(forecast.forecast_line(costs))
    for words in stops:
        say(f"first: {words}")
    return 0


def _work(command: CommandContext, args: Namespace) -> ActiveRun:
    """The run that `doit FLOW` would use with these arguments."""
    opened = command.session.project
    given: dict[str, str] = getattr(args, "given", {})
    if not args.flow:
        run = command.run(args.run)
        return command.work(run, **given)
    if args.flow not in opened.about:
        raise unknown_flow(args.flow, opened.about, opened.broken)
    if not opened.flow(args.flow).in_sessions:  # raises if the run is ambiguous
        known = [run for run in command.runs() if run.flow == args.flow]
        done = frozenset(run.name for run in known if resolve_run.is_finished(command.session, run))
        branch = head_reader.find_head(str(command.root)).branch
        request = catalogue.RunRequest(args.goal, args.run)
        catalogue.choose_run(
            known, args.flow, request, branch, done, lambda run: f"doflow plan {run.flow} --run={run.name}"
        )
    return tasks.open_run(command.session, args.flow, {"goal": args.goal, "run": args.run, **given})


def _stops(command: CommandContext, context: RunContext) -> list[str]:
    """What would prevent the run from starting."""
    found = [] if project.is_project(command.root) else [f"doflow init   (not a doflow project: {command.root})"]
    broken = command.session.project.broken
    found += [words for name, words in broken.items() if name in (context.flow.name, "doflow.yaml")]
    try:
        start.preflight(context)
    except DoflowError as error:
        found.append(str(error))
    missing = [param for param in context.flow.params if param.required and not context.params.get(param.name)]
    return found + [f'--{param.name}="…" is needed: {param.about or "what to build"}' for param in missing]


def _verdict(line: Line, context: RunContext) -> str:
    """In one word: runs, may run, pauses, fails, up to date."""
    if line.state in ("done", "edited"):
        return "may run" if line.maybe else "up to date"
    if line.role == step_status.FAULT and (step := context.flow.step(line.step)) and step.foreach:
        return "fails"  # an invalid list of items; an invalid task list pauses
    if line.role not in step_status.WORK:
        return "pauses"
    if line.state == "stale" and line.edited:
        return "pauses"
    return "may run" if line.maybe else "runs"


def _why(line: Line) -> str:
    words = "; ".join(line.reasons)
    if line.role == step_status.FAULT:
        return "\n".join((words, *(f"next: {remark}" for remark in line.remarks)))
    if line.maybe:
        words = f"{words}, {line.maybe}" if words else line.maybe
    if line.state == "stale" and line.edited:
        words += f"; but {', '.join(line.edited)} has manual edits"
    if line.state == "edited":
        words = words or f"keeping your edits to {', '.join(line.edited)}"
    return "; ".join([words, *line.remarks] if words else line.remarks)


def _table(lines: tuple[Line, ...], context: RunContext, priced: dict[str, str] | None) -> None:
    """Print the table, with a cost column if any cost is known."""
    whys = [(_why(line).splitlines() or [""]) for line in lines]
    rows: list[tuple[str, ...]] = [("", "STEP", "WHO", "WHY")]
    for line, why in zip(lines, whys, strict=True):
        rows.append((_verdict(line, context), line.name, _agent(line, context), why[0]))
    if priced is not None:
        cells = ["COST", *(priced.get(line.name, "") for line in lines)]
        rows = [(*row[:3], cell, row[3]) for row, cell in zip(rows, cells, strict=True)]
    table(rows, "  ")
    for line, (_, *more) in zip(lines, whys, strict=True):
        for number, words in enumerate(more):
            say(f"  {line.name + ':' if not number else ' ' * len(line.name) + ' '} {words.strip()}")


def _agent(line: Line, context: RunContext) -> str:
    step = context.flow.step(line.step)
    if step is None or line.role not in step_status.WORK:
        return "you" if line.role != "route" else ""
    return context.agent_of(step) if step.kind in BY_AGENT else "command" if step.kind == "shell" else "doflow"


def _say_routes(name: str, context: RunContext) -> None:
    step = context.flow.step(name)
    for rule in step.routes if step and not plans.find_route(step, context.record.markers.get(name, "")) else ():
        leads = f"pause: {rule.pause}" if rule.pause else ", ".join(rule.then) or "the run ends"
        say(f"  {name} says `{rule.when}`: {leads}")


def _json(context: RunContext, lines: tuple[Line, ...], stops: list[str], costs: list[tuple[str, Forecast]]) -> int:
    known = {name: found.plain() for name, found in costs if found.samples}
    steps = []
    for line in lines:
        about = {"verdict": _verdict(line, context), "agent": _agent(line, context)}
        steps.append({**line.plain(), **about, "forecast": known.get(line.name)})
    run, new = context.run, context.run.fresh and not step_status.is_on_other_branch(context)
    say_json({
        "run": run.name, "flow": context.flow.name, "new": new, "branch": run.branch, "goal": run.goal,
        "steps": steps, "stops": stops, "forecast": forecast.forecast_values(costs),
    })  # fmt: skip
    return 0


def _prompt(work: ActiveRun, name: str, as_json: bool) -> int:
    """Print the exact prompt on stdout, its size on stderr."""
    context = as_started(work.context)
    name, _, number = name.removeprefix(f"{context.flow.name}:").partition(":")
    job = find_prompt_job(context, CommandContext.step(work, name), number)
    for path in job.key.missing:
        warn(f"note: {path} does not exist yet; its content will be part of the prompt")
    text = reviewers.preview(job, number, context) if job.step.kind == "review" else call.build_prompt(job, context)
    data = text.encode("utf-8", "surrogateescape")
    if as_json:
        about = {"run": context.run.name, "step": job.step.id, "agent": context.agent_of(job.step)}
        say_json({**about, "bytes": len(data), "tokens": len(data) // 4, "prompt": text})
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    warn(f"{len(data):,} bytes, about {len(data) // 4:,} tokens, for {context.agent_of(job.step)}")
    return 0


def as_started(context: RunContext) -> RunContext:
    """The context as it would be right after the run starts."""
    run = context.run
    if not run.fresh or not run.goal or step_status.is_on_other_branch(context):
        return context
    goal = context.input_bytes
    return context.with_files(context.files.with_pending({f"{run.dir}/{context.input}": goal}))


def find_prompt_job(context: RunContext, step: Step, number: str) -> Job:
    """The job for this step, or for one phase, item or persona of it."""
    if step.kind == "implement":
        return _phase(step, number, context)
    if step.kind == "review":
        return _review(step, number, context)
    if step.foreach:
        step = _item(step, number, context)
    if step.kind not in BY_AGENT and not step.repair:
        own = {"gate": "asks for approval", "install": "is done by doflow itself", "session": "is a separate session"}
        what = own.get(step.kind, f"runs a command: {' '.join(step.run) or step.shell}")
        raise UsageError(f"{step.id} has no prompt: it {what}", "doflow plan lists the agent of each step")
    return shell.job(step, context) if step.kind == "shell" else agent.job(step, context)


def _review(step: Step, persona: str, context: RunContext) -> Job:
    if (step.mode or context.settings.review_mode) == "command":
        raise UsageError(f"{step.id} has no prompt: it is done by review_command", "doflow config review_command")
    if persona and persona not in step.personas:
        known = ", ".join(step.personas)
        hint = f"doflow plan --prompt {step.id}:{step.personas[0]}"
        raise UsageError(f"{step.id} has no persona {persona} (it has: {known})", hint)
    return Job(step, context.key(step), (), ())


def _item(step: Step, name: str, context: RunContext) -> Step:
    items = {item.id.partition(":")[2]: item for item in context.items(step)}
    if not items:
        words = f"{step.id} has no prompt yet: the list of its items does not exist"
        raise UsageError(words, f"{context.resume_command} makes it; doflow plan shows by which step")
    if name and name not in items:
        known = ", ".join(items)
        raise UsageError(f"{step.id} has no item {name} (it has: {known})", f"doflow plan --prompt {step.id}")
    return items[name or next(iter(items))]


def _phase(step: Step, number: str, context: RunContext) -> Job:
    """The named phase; else the first one not done; else the first."""
    path = context.phases(step)
    if not context.files.digest(path):
        words = f"{step.id} has no prompt yet: {path} with its phases does not exist"
        raise UsageError(words, f"{context.resume_command} makes it; doflow plan shows by which step")
    keyed = freshness.phase_keys(step, context)
    open_ = [phase.number for phase, key in keyed if not freshness.phase_freshness(step, phase, key, context).fresh]
    wanted = number or (open_ or [keyed[0][0].number])[0]
    for place, (phase, key) in enumerate(keyed):
        if phase.number == wanted:
            return Job(step, key, (), step.writes, phase, last=place == len(keyed) - 1)
    there = ", ".join(phase.number for phase, _ in keyed)
    hint = f"doflow plan --prompt {step.id}:{keyed[0][0].number}"
    raise UsageError(f"{path} has no phase {wanted} (it has: {there})", hint)
