"""`doflow why STEP`: why a step is or is not up to date, and who wrote its inputs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Any

from doflow.cli import next_command, step_status
from doflow.cli.context import CommandContext
from doflow.cli.output import say, say_json
from doflow.cli.step_status import Line
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import gate
from doflow.flow import markdown
from doflow.flow.model import Step
from doflow.runs import catalogue, freshness, mutex, run_history
from doflow.runs.context import RunContext
from doflow.util.errors import UsageError

ABOUT = "Explain why a step is or is not up to date. Nothing is run or written."
EXAMPLES = """\
  doflow why plan           a step of the run of this branch
  doflow why implement:2    one phase
  doflow why plan.gate      a pause
  doflow why tiny:plan --run 3"""

_STATES = {
    "done": "up to date", "edited": "up to date; has manual edits", "stale": "out of date", "running": "running now",
    "next": "ready to run", "waiting": "not run yet; waiting for earlier steps",
    "asks": "waiting for you",
}  # fmt: skip


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", help="a step, a phase (implement:2) or a pause (plan.gate)")
    parser.add_argument("--run", default="", help="run name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def why(args: Namespace) -> int:
    command = CommandContext()
    flow, name = _split(command, args.step, args.run)
    work = command.work(command.run(args.run, flow))
    every, _ = next_command.preview_lines(work, mutex.is_held(command.root))
    # a step selects itself, its phases and its items; anything else only itself
    lines = [each for each in every if each.name == name or (each.role in ("phase", "item") and each.step == name)]
    if not lines:  # the parts of an unreadable list are unknown: show what is wrong with it
        lines = [line for line in every if line.role == step_status.FAULT and name.startswith(f"{line.step}:")]
    lines = lines or [_idle(work, name)]
    if args.json:
        say_json(_plain(work.context, name, lines))
        return 0
    for line in lines:
        _tell(line, work.context)
        _files(line, work.context)
    return 0


def _split(command: CommandContext, name: str, run: str) -> tuple[str, str]:
    """`tiny:plan` names the flow too; `implement:2`, a phase of a step, does not."""
    first, colon, rest = name.partition(":")
    opened = command.session.project
    if colon and first in opened.about:
        steps = {step.id for step in opened.flow(first).steps}
        if rest.partition(":")[0].partition(".")[0] in steps or command.run(run).flow == first:
            return first, rest
    return "", name


def _idle(work: ActiveRun, name: str) -> Line:
    """A line for a pause that has passed, or a step that is not on the route."""
    bare = name.partition(":")[0].partition(".")[0]
    step = CommandContext.step(work, bare)
    context = work.context
    if ":" in name:
        number = name.partition(":")[2]
        what = f"{context.phases(step)} has no phase {number}" if step.phases else f"{bare} has no part {number}"
        raise UsageError(what, f"doflow why {bare}")
    known = [node.name.removeprefix(f"{context.flow.name}:") for node in context.plan.nodes]
    if name not in known:
        near = ", ".join(other for other in known if other.startswith(bare))
        raise UsageError(f"{context.flow.name} has no {name} (known: {near})", f"doflow why {bare}")
    if "." in name:
        words = {"clarify": "no question is open", "route": f"{bare} has given no marker yet"}[name.rpartition(".")[2]]
        return Line(name, "clarify", step.id, remarks=(words,))
    return Line(name, "step", step.id, "waiting", (f"{name} is not on the route of this run",))


def _tell(line: Line, context: RunContext) -> None:
    passed = line.role in ("gate", "clarify", "route") and line.state == "done"
    say(f"{line.name} ({context.flow.name}, run {context.run.name}): {'passed' if passed else _STATES[line.state]}")
    asks = next_command.advice_for_line(line, context) if line.state == "asks" else None
    for words in (asks.waits,) if asks else line.reasons:
        say(f"  because {words}" if line.role in step_status.WORK else f"  {words}")
    if asks:
        for changed in _changes(line, context).splitlines():
            say(f"    {changed}")
        say(f"  next: {asks.command}")
    if line.maybe:
        say(f"  may run, {line.maybe}")
    for words in line.remarks if line.role != step_status.FAULT else ():
        say(f"  note: {words}")
    if line.role == "gate" and line.state == "done":
        held = context.record.approvals.get(line.step)
        note = f": {held.note}" if held and held.note else ""
        by = f"{held.by or 'a person'} at {held.at}{note}" if held else "auto_approve"
        say(f"  approved by {by}")
    if line.role == "route" and line.state == "done":
        say(f"  its marker is `{line.author}`")
    if line.changed and not line.reasons:
        say(f"  (not run again for this; to run it again: {context.resume_command} --force={line.step})")


def _changes(line: Line, context: RunContext) -> str:
    """What a gate that asks again shows: the changes since it was approved."""
    step = context.flow.step(line.step) if line.role == "gate" else None
    return gate.changes_since_approval(step, context) if step else ""


def _files(line: Line, context: RunContext) -> None:
    step = _step(line, context)
    if step is None:
        return
    for made in _makes(step, context):
        say(f"  makes {made['path']}: {_by(made)}{', edited since' if made['edited'] else ''}")
    for read in _reads(line, step, context):
        by = f"by {read['author']}" if read["author"] else "missing" if not read["digest"] else "not made by this run"
        about = " (shown to the agent; changes do not invalidate the phase)" if line.role == "phase" else ""
        say(f"  reads {read['path']}: {by}{', changed since' if read['changed'] else ''}{about}")
    record = context.record.steps.get(line.name)
    if record is not None:
        commit = step_status.step_commits(context).get(line.name, "")[:7]
        say(f"  last completed: {record.at or 'unknown'}{f', commit {commit}' if commit else ''}")
    if line.state in ("stale", "next"):
        say(f"  next: {next_command.continue_command(context)}")


def _by(made: dict[str, Any]) -> str:
    if made["author"] == run_history.COMMITTED:
        return "as committed; not made by a run"
    return f"by {made['author']}" if made["author"] else "of unknown origin" if made["digest"] else "missing"


def _step(line: Line, context: RunContext) -> Step | None:
    if line.role not in step_status.WORK:
        return None
    return context.step(line.name) if line.role == "item" else context.flow.step(line.step)


def _makes(step: Step, context: RunContext) -> list[dict[str, Any]]:
    found = []
    for name in step.makes:
        path = context.files.path(name)
        held = context.record.artifacts.get(path)
        now = context.files.digest(path)
        other = run_history.file_origin(path, context) if now and (held is None or held.digest != now) else ""
        edited = bool(now) and held is not None and held.digest != now and not other
        author = other or (held.author if held else "")
        found.append({"path": path, "digest": now, "author": author, "edited": edited})
    return found


def _reads(line: Line, step: Step, context: RunContext) -> list[dict[str, Any]]:
    """The inputs of a step, their authors, and whether they changed since the last run."""
    record = context.record.steps.get(line.name)
    found = []
    if line.role == "phase":
        number = line.name.partition(":")[2]
        reads = (replace(read, path=markdown.phase_path(read.path, number)) for read in step.reads)
        step = replace(step, reads=tuple(reads))
    key = context.key(step)
    for path, now in key.reads.items():
        if line.role in ("phase", "phases") and not now and path not in key.missing:
            continue  # optional inputs that a list of another tool may have
        bare = path.partition("#")[0]
        held = context.record.artifacts.get(bare)
        author = "person" if held and freshness.has_manual_edit(bare, context) else held.author if held else ""
        author = author or ("you: the goal" if bare == f"{context.run.dir}/{context.input}" else "")
        changed = record is not None and line.role in ("step", "item") and record.reads.get(path, "") != now
        found.append({"path": path, "digest": now, "author": author, "changed": changed})
    return found


def _plain(context: RunContext, name: str, lines: list[Line]) -> dict[str, Any]:
    line = lines[0]
    step = _step(line, context)
    commits = step_status.step_commits(context)
    times = {name: record.at for name, record in context.record.steps.items()}
    entries = []
    for each in lines:
        about = {"fresh": not each.reasons, "commit": commits.get(each.name, ""), "at": times.get(each.name, "")}
        entries.append({**each.plain(), **about})
    where = {"run": context.run.name, "flow": context.flow.name, "goal": catalogue.shorten(context.run.goal)}
    files = {"makes": _makes(step, context), "reads": _reads(line, step, context)} if step else {}
    go = next_command.advice_for_line(line, context).command if line.state == "asks" else ""
    go = next_command.continue_command(context) if line.state in ("stale", "next") else go
    return {**where, **entries[0], "step": name, "next": go, **files, "parts": entries}
