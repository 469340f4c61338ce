"""`doflow cost`: tokens, cost and time of agent calls, from the event logs. Read-only."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.cli.context import CommandContext
from doflow.cli.output import count_of, say, say_json, table, warn
from doflow.runs import lockfile, usage
from doflow.runs.catalogue import Run
from doflow.runs.usage import Call, Sum
from doflow.util import state_folder
from doflow.util.errors import WorldError
from doflow.util.text import format_duration

ABOUT = "Show tokens, cost and time of agent calls, for one run or all runs. Calls without a price are shown as unpriced, not free."
EXAMPLES = """\
  doflow cost                  the run of this branch, step by step
  doflow cost 3 --by model     run 003-…, by model
  doflow cost --all            every run of this project
  doflow cost --all --json     every call, for programs"""

_BY = ("step", "phase", "attempt", "role", "persona", "agent", "model", "run", "status")
_HEAD = ("CALLS", "IN", "CACHED", "OUT", "USD", "TIME")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="", help="run name or number (default: the run of this branch)")
    parser.add_argument("--all", action="store_true", help="every run of this project")
    parser.add_argument("--by", choices=_BY, default="", help="one line for each (default: step; with --all: run)")
    parser.add_argument("--json", action="store_true", help="one JSON document, with every call")


def cost(args: Namespace) -> int:
    command = CommandContext()
    chosen = command.runs() if args.all else (command.run(args.run),)
    by = args.by or ("run" if args.all else "step")
    logs = [command.root / state_folder.RUNS / run.name / "events.jsonl" for run in chosen]
    found = [call for log in logs for call in usage.load_calls(log, command.session.project.settings())]
    sums = usage.group_calls(found, lambda call: _name(call, by))
    whole = usage.sum_calls(found)
    if args.json:
        say_json({
            "runs": [run.name for run in chosen], "by": by, "sums": [one.plain() for one in sums],
            "total": whole.plain(), "calls": [call.plain() for call in found],
        })  # fmt: skip
        return 0
    title = "every run of this project" if args.all else f"{chosen[0].name} ({chosen[0].flow})"
    if not found:
        say(f"{title}: no agent calls recorded here")
    else:
        say(title)
        table([(by.upper(), *_HEAD), *(_cells(one) for one in sums), *([_cells(whole)] if len(sums) > 1 else [])], "  ")
        _remarks(whole, found)
    for run in chosen:
        _elsewhere(command, run, found)
    return 0


def _name(call: Call, by: str) -> str:
    if by == "phase":
        return f"{call.step}:{call.phase}" if call.phase else call.step
    if by == "attempt":
        return f"{call.step}:{call.phase} {call.attempt}" if call.phase else f"{call.step} {call.attempt}"
    if by == "persona":
        return f"{call.step} {call.persona or call.role}"
    return str(getattr(call, by)) or "(unknown)"


def _cells(one: Sum) -> tuple[str, ...]:
    reported = one.silent < one.calls
    counts = [f"{count:,}" if reported else "?" for count in (one.taken, one.cached, one.given)]
    return (one.name, str(one.calls), *counts, _usd(one), format_duration(int(one.seconds)))


def _usd(one: Sum) -> str:
    """The cost column: unknown prices are never shown as 0."""
    if one.usd is None:
        return "unpriced" if one.unpriced else "?"
    if one.usd == 0 and not one.unpriced:
        return "free"
    return usage.format_dollars(one.usd) + (" +" if one.unpriced or one.silent else "")


def _remarks(whole: Sum, found: list[Call]) -> None:
    if whole.unpriced:
        names = ", ".join(sorted({call.agent for call in found if call.tokens and call.usd is None}))
        say(f"{whole.unpriced:,} tokens are unpriced (agents: {names}).")
        say("   next: set their price in doflow.yaml: `price: {in: …, out: …}` of the agent, or `prices: {MODEL: {…}}`")
    if whole.silent:
        ill = sum(1 for call in found if call.tokens is None and call.status != "done")
        say(
            f"{count_of(whole.silent, 'call')} did not report usage ({ill} of them failed); not included in the totals."
        )


def _elsewhere(command: CommandContext, run: Run, found: list[Call]) -> None:
    """For a run whose event log is on another machine, show the cost in its lock file."""
    if any(call.run == run.name for call in found):
        return
    try:
        held = lockfile.read_lock(command.root / run.dir / lockfile.NAME)
    except WorldError as error:
        warn(str(error))
        return
    steps = held.steps if held else {}
    paid = {name: float(record.by["usd"]) for name, record in steps.items() if "usd" in record.by}
    if paid:
        total = usage.format_dollars(sum(paid.values()))
        say(f"{run.name}: {total} for {', '.join(paid)} according to its lock file; its event log is not here.")
