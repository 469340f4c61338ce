"""`doflow answer`: answers to the questions an agent left; each takes the place of its marker, nothing else changes."""

from __future__ import annotations

import argparse
import sys

from doflow.cli import decisions as deciding, output as commands
from doflow.cli.commands.decide import answer_input as answers
from doflow.cli.context import Desk
from doflow.engine.lifecycle.session import Work
from doflow.engine.steps import gate
from doflow.flow import markdown as sections
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.state.lockfile import Artifact
from doflow.util import atomic_files as files
from doflow.util.errors import UsageError
from doflow.util.records import replace

ABOUT = "answer the questions that an agent left in its artifact ([NEEDS CLARIFICATION: …])"
EXAMPLES = """\
  doflow answer --list            the questions, numbered
  doflow answer                   ask me one after the other (on a terminal)
  doflow answer "by email" "7 days"
  doflow answer specify "by email"       only what this step asks
  doflow answer --answer 2="7 days"
  doflow answer --file answers.yaml      a list, or `2: 7 days` lines, or one answer per line; - is standard input
"""

_ANSWERS = "answers in the order of the questions; a first word that names a step with open questions means that step's"

Asked = tuple[tuple[str, str, str], ...]  # step, file, question


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("answers", nargs="*", metavar="[STEP] ANSWER", help=_ANSWERS)
    parser.add_argument("--answer", action="append", default=[], metavar="N=TEXT", help="the answer to question N")
    parser.add_argument("--file", default="", metavar="F", help="read the answers from a file")
    parser.add_argument("--list", action="store_true", help="only show the open questions")
    deciding.options(parser)


def answer(args: argparse.Namespace) -> int:
    desk = Desk()
    run = desk.run(args.run)
    world = desk.work(run).world
    step = _step(args, _asked(world))
    asked = _asked(world, step)
    if args.list:
        return _list(args, asked, world)
    if not asked:
        raise UsageError(f"no question is open in run {run.name}", f"{deciding.onward(world)}   or   doflow status")
    given = _given(args, asked)
    with deciding.opened(run.name) as (desk, work):
        if _asked(work.world, step) != asked:
            raise UsageError("the questions have changed meanwhile; nothing was written", "doflow answer --list")
        desk.session.begin(work)
        return _write(args, asked, given, work)


def _step(args: argparse.Namespace, asked: Asked) -> str:
    """The first word, taken off, if it names a step with open questions; '' = all steps are meant."""
    named = bool(args.answers) and args.answers[0] in {step for step, _, _ in asked}
    return str(args.answers.pop(0)) if named else ""


def _asked(world: World, only: str = "") -> Asked:
    """Every open question of the steps that are done (or of one of them), in the order of the flow."""
    steps = [step for name in world.order() if name in world.book.steps and (step := world.flow.step(name))]
    return tuple(
        (step.id, path, words)
        for step in steps
        if step.clarify and only in ("", step.id)
        for path, words in gate.open_questions(step, world)
    )


def _list(args: argparse.Namespace, asked: Asked, world: World) -> int:
    if args.json:
        names = ("step", "file", "question")
        rows = [{"number": number, **dict(zip(names, row, strict=True))} for number, row in _numbered(asked)]
        commands.say_json({"run": world.run.name, "questions": rows})
    elif asked:
        commands.say(f"{_count(len(asked))} open in run {world.run.name}:{_lines(asked)}\n{_how(asked)}")
    else:
        commands.say(f"no question is open in run {world.run.name}")
    return 0


def _given(args: argparse.Namespace, asked: Asked) -> dict[int, str]:
    if args.file and (args.answers or args.answer):
        raise UsageError("answers come from the file or from the command line, not from both", "leave one of them out")
    if args.file:
        return answers.settled(answers.read(args.file), len(asked))
    if args.answers or args.answer:
        return answers.settled(answers.said(args.answers, args.answer), len(asked))
    if not sys.stdin.isatty():
        raise UsageError(f"{_count(len(asked))} open:{_lines(asked)}", _how(asked))
    return _interview(asked)


def _interview(asked: Asked) -> dict[int, str]:
    """One question after the other; an empty line is no answer, the end of input leaves the rest open."""
    commands.say(f"{_count(len(asked))} open; ^D leaves the rest open")
    given: dict[int, str] = {}
    for number, (_, path, words) in _numbered(asked):
        commands.say(f"\n{number}. {words}   ({path})")
        text = ""
        while not text:
            sys.stdout.write("> ")
            sys.stdout.flush()
            line = sys.stdin.readline()
            if not line:
                commands.say()
                if given:
                    return given
                raise UsageError("nothing was answered", _how(asked))
            text = line.strip()
        given[number] = text
    return given


def _write(args: argparse.Namespace, asked: Asked, given: dict[int, str], work: Work) -> int:
    world = work.world
    paths = tuple(dict.fromkeys(asked[number - 1][1] for number in given))
    for path in paths:
        mine = [(number, step) for number, (step, file, _) in _numbered(asked) if file == path]
        step = world.flow.step(mine[0][1])
        assert step is not None
        _replace(path, tuple(given.get(number) for number, _ in mine), step, world)
    told = [{"question": asked[number - 1][2], "answer": text} for number, text in sorted(given.items())]
    steps = list(dict.fromkeys(asked[number - 1][0] for number in sorted(given)))
    world.ledger.add("answered", step=steps[0], files=list(paths), answers=told, by=deciding.decider(world))
    count = f"{len(given)} answer{'s' if len(given) > 1 else ''}"
    commit = deciding.kept(work, f"Answer {', '.join(steps)}: {count}", paths, steps[0])
    left = _asked(world)
    _leave(left, steps[0], work)
    words = f"{count} written into {', '.join(paths)}"
    after = f"go on with: {deciding.onward(world)}"
    if left:
        after = f"{_count(len(left))} left:{_lines(left)}\n{_how(left)}"
    return deciding.tell(args, f"{words}\n{after}", run=world.run.name, files=list(paths), answered=len(given),
                         left=len(left), commit=commit)  # fmt: skip


def _replace(path: str, texts: tuple[str | None, ...], step: Step, world: World) -> None:
    """The step stays done with the new bytes; text of a person's own stays theirs."""
    author = "person" if judge.carried(path, world) else "answer"
    full = world.root / path
    text = sections.answered(full.read_bytes().decode("utf-8", "surrogateescape"), texts)  # line ends as they are
    files.write(full, text.encode("utf-8", "surrogateescape"), full.stat().st_mode & 0o777)
    record = world.book.steps[step.id]
    made = {**record.made, path: world.digest(path)}
    world.put(step.id, replace(record, made=made), {path: Artifact(world.digest(path), author, step.id)})


def _leave(left: Asked, step: str, work: Work) -> None:
    if not left:
        deciding.closed(work, f"the questions of {step} are answered")
        return
    waits = work.world.flow.step(left[0][0])
    assert waits is not None
    gate.clarify(waits, work.world)
    work.projection.finish("paused")


def _numbered(asked: Asked) -> list[tuple[int, tuple[str, str, str]]]:
    return list(enumerate(asked, 1))


def _count(number: int) -> str:
    return f"{number} question{'s' if number != 1 else ''}"


def _lines(asked: Asked) -> str:
    return "".join(f"\n  {number}. {words}   ({path})" for number, (_, path, words) in _numbered(asked))


def _how(asked: Asked) -> str:
    if len(asked) == 1:
        return 'doflow answer "…"'
    places = " ".join(f'"answer {number}"' for number in range(1, len(asked) + 1))
    return f'doflow answer {places}   or one of them: doflow answer --answer {len(asked)}="…"'
