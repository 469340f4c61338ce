"""`doflow why STEP`: the reason in words why a step is, or is not, up to date, and who wrote what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doflow.cli.context import Desk
from doflow.cli.output import say, say_json
from doflow.cli.report import after_crash as aftermath, next_command as advice, step_status as outlook
from doflow.cli.report.step_status import Line
from doflow.engine.jobs import adoption as adopting
from doflow.engine.lifecycle.session import Work
from doflow.flow import markdown as sections
from doflow.flow.model import Step
from doflow.runs import catalogue as runs, mutex as holder
from doflow.runs.context import World
from doflow.runs.freshness import file_origins as inherited, freshness as judge
from doflow.util.errors import UsageError
from doflow.util.records import replace

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "Why a step is, or is not, up to date: the reasons in words. Nothing is run, nothing is written."
EXAMPLES = """\
  doflow why plan           a step of the run of this branch
  doflow why implement:2    one phase
  doflow why plan.gate      a pause
  doflow why tiny:plan --run 3"""

_STATES = {
    "done": "up to date", "edited": "up to date; edited by hand", "stale": "stale", "running": "running now",
    "next": "not done yet; its turn has come", "waiting": "not done yet; it waits for steps before it",
    "asks": "waits for you",
}  # fmt: skip


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("step", help="a step, a phase (implement:2) or a pause (plan.gate)")
    parser.add_argument("--run", default="", help="the run that is meant: its name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def why(args: Namespace) -> int:
    desk = Desk()
    flow, name = _split(desk, args.step, args.run)
    work = desk.work(desk.run(args.run, flow))
    adopting.foresee(aftermath.seen(work))
    told = aftermath.noted(outlook.of(work.world, holder.held(desk.root)), work.world)
    lines = [line for line in told if _meant(line, name)]
    if not lines:  # of a list that cannot be read nobody knows the parts: then its faults are told
        lines = [line for line in told if line.role == outlook.FAULT and name.startswith(f"{line.step}:")]
    if not lines:
        lines = [_idle(work, name)]
    if args.json:
        say_json(_plain(work.world, name, lines))
        return 0
    for line in lines:
        _tell(line, work.world)
        _files(line, work.world)
    return 0


def _split(desk: Desk, said: str, run: str) -> tuple[str, str]:
    """`tiny:plan` names the flow too; `implement:2` does not."""
    first, colon, rest = said.partition(":")
    flows = desk.session.project.about
    if colon and first in flows and (not rest.isdigit() or desk.run(run).flow == first):
        return first, rest
    return "", said


def _meant(line: Line, name: str) -> bool:
    """A step means itself, its phases and its items; anything else only itself."""
    return line.name == name or (line.role in ("phase", "item") and line.step == name)


def _idle(work: Work, name: str) -> Line:
    """Known to the flow, but nothing to say or to do: a pause that is passed, a step that no route named."""
    bare = name.partition(":")[0].partition(".")[0]
    step = Desk.step(work, bare)
    world = work.world
    if ":" in name:
        number = name.partition(":")[2]
        what = f"{world.phases(step)} has no phase {number}" if step.phases else f"{bare} has no part {number}"
        raise UsageError(what, f"doflow why {bare}")
    known = [node.name.removeprefix(f"{world.flow.name}:") for node in world.plan.nodes]
    if name not in known:
        near = ", ".join(other for other in known if other.startswith(bare))
        raise UsageError(f"{world.flow.name} has no {name} (there are: {near})", f"doflow why {bare}")
    if "." in name:
        words = {"clarify": "no question is open", "route": f"{bare} has given no marker yet"}[name.rpartition(".")[2]]
        return Line(name, "clarify", step.id, remarks=(words,))
    return Line(name, "step", step.id, "waiting", (f"no route of this run leads to {name}",))


def _tell(line: Line, world: World) -> None:
    say(f"{line.name} ({world.flow.name}, run {world.run.name}): {_words(line)}")
    asks = advice.on(line, world) if line.state == "asks" and line.role != outlook.FAULT else None
    for words in (asks.waits,) if asks else line.reasons:
        say(f"  because {words}" if line.role in outlook.WORK else f"  {words}")
    if asks:
        say(f"  next: {asks.command}")
    if line.maybe:
        say(f"  may run, {line.maybe}")
    for words in line.remarks:
        say(f"  {'next' if line.role == outlook.FAULT else 'note'}: {words}")
    if line.role == "gate" and line.state == "done":
        say(f"  approved by {_approval(line.step, world)}")
    if line.role == "route" and line.state == "done":
        say(f"  its marker is `{line.author}`")
    if not line.reasons and any(" was " in words and ", now " in words for words in line.remarks):
        say(f"  (shown, not redone; {world.again} --force={line.step} redoes it)")


def _words(line: Line) -> str:
    return "passed" if line.role in ("gate", "clarify", "route") and line.state == "done" else _STATES[line.state]


def _approval(step: str, world: World) -> str:
    held = world.book.approvals.get(step)
    if held is None:
        return "auto_approve"
    note = f": {held.note}" if held.note else ""
    return f"{held.by or 'a person'} at {held.at}{note}"


def _files(line: Line, world: World) -> None:
    step = _step(line, world)
    if step is None:
        return
    for made in _makes(step, world):
        say(f"  makes {made['path']}: {_by(made)}{', edited since' if made['edited'] else ''}")
    for read in _reads(line, step, world):
        by = f"by {read['author']}" if read["author"] else "not there" if not read["digest"] else "not made by this run"
        about = " (shown to the agent; a change in it makes no phase stale)" if line.role == "phase" else ""
        say(f"  reads {read['path']}: {by}{', changed since' if read['changed'] else ''}{about}")
    record = world.book.steps.get(line.name)
    if record is not None:
        commit = outlook.commits(world).get(line.name, "")[:7]
        say(f"  last done {record.at or 'at a time nobody wrote down'}{f', commit {commit}' if commit else ''}")
    if line.state in ("stale", "next"):
        say(f"  next: {advice.command(world)}")


def _by(made: dict[str, Any]) -> str:
    if made["author"] == inherited.COMMITTED:
        return "as committed; no run made it"
    return f"by {made['author']}" if made["author"] else "of unknown origin" if made["digest"] else "not there"


def _step(line: Line, world: World) -> Step | None:
    if line.role not in outlook.WORK:
        return None
    return world.step(line.name) if line.role == "item" else world.flow.step(line.step)


def _makes(step: Step, world: World) -> list[dict[str, Any]]:
    found = []
    for said in step.makes:
        path = world.path(said)
        held = world.book.artifacts.get(path)
        now = world.digest(path)
        other = inherited.origin(path, world) if now and (held is None or held.digest != now) else ""
        edited = bool(now) and held is not None and held.digest != now and not other
        author = other or (held.author if held else "")
        found.append({"path": path, "digest": now, "author": author, "edited": edited})
    return found


def _reads(line: Line, step: Step, world: World) -> list[dict[str, Any]]:
    """What it reads, whose it is, and whether it is another than the last time."""
    record = world.book.steps.get(line.name)
    found = []
    if line.role == "phase":
        number = line.name.partition(":")[2]
        step = replace(
            step, reads=tuple(replace(read, path=sections.of_phase(read.path, number)) for read in step.reads)
        )
    for path, now in world.key(step).reads.items():
        bare = path.partition("#")[0]
        held = world.book.artifacts.get(bare)
        author = "person" if held and judge.carried(bare, world) else held.author if held else ""
        author = author or ("you: the goal" if bare == f"{world.run.dir}/{world.input}" else "")
        changed = record is not None and line.role in ("step", "item") and record.reads.get(path, "") != now
        found.append({"path": path, "digest": now, "author": author, "changed": changed})
    return found


def _plain(world: World, name: str, lines: list[Line]) -> dict[str, Any]:
    line = lines[0]
    step = _step(line, world)
    commits = outlook.commits(world)
    times = {name: record.at for name, record in world.book.steps.items()}
    entries = []
    for each in lines:
        about = {"fresh": not each.reasons, "commit": commits.get(each.name, ""), "at": times.get(each.name, "")}
        entries.append({**each.plain(), **about})
    where: dict[str, Any] = {"run": world.run.name, "flow": world.flow.name, "goal": runs.shorten(world.run.goal)}
    files = {"makes": _makes(step, world), "reads": _reads(line, step, world)} if step else {}
    go = advice.on(line, world).command if line.state == "asks" else ""
    go = advice.command(world) if line.state in ("stale", "next") else go
    return {**where, **entries[0], "step": name, "next": go, **files, "parts": entries}
