"""`doflow plan`: what would run now, in order, and why; or the prompt that would be sent. Nothing is run or written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from doflow.cli.context import Desk
from doflow.cli.output import say, say_json, table, warn
from doflow.cli.report import after_crash as aftermath, forecast as prospect, step_status as outlook
from doflow.cli.report.forecast import Prospect
from doflow.cli.report.step_status import Line
from doflow.config import project
from doflow.engine.doit import tasks
from doflow.engine.jobs import adoption as adopting
from doflow.engine.lifecycle import resolve_run as meant, start as intake
from doflow.engine.lifecycle.session import Work
from doflow.flow import plan as plans
from doflow.flow.model import BY_AGENT
from doflow.git import repository as look
from doflow.runs import catalogue as runs
from doflow.runs.context import World
from doflow.util.errors import DoflowError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from doflow.runs.state.call_history import Forecast

ABOUT = "What would run now, and why, in order. Nothing is run, nothing is written."
EXAMPLES = """\
  doflow plan                       the run of this branch
  doflow plan tiny --goal "…"       a run that has not begun
  doflow plan tiny --prompt plan    exactly what the agent of `plan` would be told"""

_PAID = ("runs", "may run")
_SUMS = (
    ("runs", "to run"),
    ("may run", "perhaps"),
    ("pauses", "to wait for you"),
    ("fails", "to fail"),
    ("up to date", "up to date"),
)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("flow", nargs="?", default="", help="the flow (default: that of the run)")
    parser.add_argument("--run", default="", help="the run that is meant: its name or number")
    parser.add_argument("--goal", default=None, help="what to build, as for doit FLOW")
    parser.add_argument("--prompt", default="", metavar="STEP", help="print the prompt of this step, and nothing else")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def plan(args: Namespace) -> int:
    desk = Desk()
    work = _work(desk, args)
    world = aftermath.seen(work)
    if args.prompt:
        return _prompt(work, args.prompt, args.json)
    adopting.foresee(world)
    lines = aftermath.noted(outlook.of(world), world)
    stops = _stops(desk, world)
    ahead = Prospect(world)
    costs = [(line.name, ahead.of(line)) for line in lines if _verdict(line, world) in _PAID and ahead.works(line)]
    if args.json:
        return _json(world, lines, stops, costs)
    new = " (a new run)" if world.run.fresh and not outlook.away(world) else ""
    say(f"{world.flow.name}: {world.run.name}{new}, branch {world.run.branch}")
    priced = {name: prospect.shown(found) for name, found in costs}
    _table(lines, world, priced if any(found.samples for _, found in costs) else None)
    for name in [line.name for line in lines if line.role == "step"]:
        _say_routes(name, world)
    found = [_verdict(line, world) for line in lines]
    counts = [f"{found.count(word)} {words}" for word, words in _SUMS if word in found]
    say(", ".join(counts) if set(found) != {"up to date"} else "nothing to run: everything is up to date")
    if costs:
        say(prospect.sentence(costs))
    for words in stops:
        say(f"but first: {words}")
    return 0


def _work(desk: Desk, args: Namespace) -> Work:
    """The run that `doit FLOW` with these words would mean."""
    opened = desk.session.project
    given: dict[str, str] = getattr(args, "given", {})
    if not args.flow:
        run = desk.run(args.run)
        return desk.work(run, **given)
    if args.flow not in opened.about:
        import difflib

        broken = opened.broken.get(args.flow)
        near = difflib.get_close_matches(args.flow, opened.about, 1)
        hint = f"did you mean {near[0]}?" if near else f"flows: {', '.join(opened.about)}"
        raise UsageError(broken or f"there is no flow {args.flow}", "" if broken else hint)
    known = desk.runs()
    done = frozenset(run.name for run in known if run.flow == args.flow and meant.finished(desk.session, run))
    wish = runs.Wish(args.goal, args.run)
    if not opened.flow(args.flow).in_sessions:
        branch = look.find(str(desk.root)).branch
        runs.choose(known, args.flow, wish, branch, done, lambda run: f"doflow plan {run.flow} --run={run.name}")
    return tasks.open_work(desk.session, args.flow, {"goal": args.goal, "run": args.run, **given})


def _stops(desk: Desk, world: World) -> list[str]:
    """What would keep the run from beginning."""
    found = [] if project.begun(desk.root) else [f"doflow init   ({desk.root} is no project of doflow's yet)"]
    broken = desk.session.project.broken
    found += [words for name, words in broken.items() if name in (world.flow.name, "doflow.yaml")]
    try:
        intake.preflight(world)
    except DoflowError as error:
        found.append(str(error))
    missing = [param for param in world.flow.params if param.required and not world.params.get(param.name)]
    return found + [f'--{param.name}="…" is needed: {param.about or "what to build"}' for param in missing]


def _verdict(line: Line, world: World) -> str:
    """In one word: runs, may run, pauses, fails, up to date."""
    if line.state in ("done", "edited"):
        return "may run" if line.maybe else "up to date"
    if line.role == outlook.FAULT and (step := world.flow.step(line.step)) and step.foreach:
        return "fails"  # a list of items that is not right; of a task list a person is asked
    if line.role not in outlook.WORK:
        return "pauses"
    if line.state == "stale" and line.edited:
        return "pauses"
    return "may run" if line.maybe else "runs"


def _why(line: Line) -> str:
    words = "; ".join(line.reasons)
    if line.role == outlook.FAULT:
        return "\n".join((words, *(f"next: {remark}" for remark in line.remarks)))
    if line.maybe:
        words = f"{words}, {line.maybe}" if words else line.maybe
    if line.state == "stale" and line.edited:
        words += f"; but {', '.join(line.edited)} carries an edit by hand"
    if line.state == "edited":
        words = words or f"edited by hand: {', '.join(line.edited)} is kept"
    return "; ".join([words, *line.remarks] if words else line.remarks)


def _table(lines: tuple[Line, ...], world: World, priced: dict[str, str] | None) -> None:
    """With a column for the cost only where something is known of it."""
    whys = [(_why(line).splitlines() or [""]) for line in lines]
    rows: list[tuple[str, ...]] = [
        ("", "STEP", "WHO", "WHY"),
        *(
            (_verdict(line, world), line.name, _agent(line, world), why[0])
            for line, why in zip(lines, whys, strict=True)
        ),
    ]
    if priced is not None:
        cells = ["COST", *(priced.get(line.name, "") for line in lines)]
        rows = [(*row[:3], cell, row[3]) for row, cell in zip(rows, cells, strict=True)]
    table(rows, "  ")
    for line, (_, *more) in zip(lines, whys, strict=True):
        for number, words in enumerate(more):
            say(f"  {line.name + ':' if not number else ' ' * len(line.name) + ' '} {words.strip()}")


def _agent(line: Line, world: World) -> str:
    step = world.flow.step(line.step)
    if step is None or line.role not in outlook.WORK:
        return "you" if line.role != "route" else ""
    return world.agent_of(step) if step.kind in BY_AGENT else "command" if step.kind == "shell" else "doflow"


def _say_routes(name: str, world: World) -> None:
    step = world.flow.step(name)
    for rule in step.routes if step and not plans.rule(step, world.book.markers.get(name, "")) else ():
        leads = f"pause: {rule.pause}" if rule.pause else ", ".join(rule.then) or "the run ends there, done"
        say(f"  {name} says `{rule.when}`: {leads}")


def _json(world: World, lines: tuple[Line, ...], stops: list[str], costs: list[tuple[str, Forecast]]) -> int:
    known = {name: found.plain() for name, found in costs if found.samples}
    steps = [
        {
            **line.plain(),
            "verdict": _verdict(line, world),
            "agent": _agent(line, world),
            "forecast": known.get(line.name),
        }
        for line in lines
    ]
    about = {"run": world.run.name, "flow": world.flow.name, "new": world.run.fresh and not outlook.away(world)}
    say_json({**about, "branch": world.run.branch, "goal": world.run.goal, "steps": steps, "stops": stops,
              "forecast": prospect.plain(costs)})  # fmt: skip
    return 0


def _prompt(work: Work, said: str, as_json: bool) -> int:
    """The prompt byte by byte on stdout, its size on stderr."""
    from doflow.agents import call as calling
    from doflow.cli.report import prompt_preview as imagining
    from doflow.engine.steps import reviewers

    world = imagining.begun(work.world)
    name, _, number = said.removeprefix(f"{world.flow.name}:").partition(":")
    job = imagining.job(world, Desk.step(work, name), number)
    for path in job.key.missing:
        warn(f"note: {path} does not exist yet; what stands in it will be part of the prompt")
    text = reviewers.preview(job, number, world) if job.step.kind == "review" else calling.prompt(job, world)
    data = text.encode("utf-8", "surrogateescape")
    if as_json:
        about = {"run": world.run.name, "step": job.step.id, "agent": world.agent_of(job.step)}
        say_json({**about, "bytes": len(data), "tokens": len(data) // 4, "prompt": text})
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    warn(f"{len(data):,} bytes, about {len(data) // 4:,} tokens, for {world.agent_of(job.step)}")
    return 0
