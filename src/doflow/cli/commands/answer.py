"""`doflow answer`: replaces each question marker in an artifact with its answer, and changes nothing else."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from doflow.cli import decisions, next_command, output
from doflow.cli.context import CommandContext
from doflow.engine.jobs import commit
from doflow.engine.lifecycle.session import ActiveRun
from doflow.engine.steps import gate
from doflow.flow import markdown
from doflow.flow.model import Step
from doflow.flow.parsing import loader
from doflow.runs import freshness
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Artifact
from doflow.util import atomic_files
from doflow.util.errors import FlowError, UsageError

ABOUT = "answer the open questions in an agent's artifact ([NEEDS CLARIFICATION: …])"
EXAMPLES = """\
  doflow answer --list            the questions, numbered
  doflow answer                   answer one after the other (on a terminal)
  doflow answer "by email" "7 days"
  doflow answer specify "by email"       only the questions of this step
  doflow answer --answer 2="7 days"
  doflow answer --file answers.yaml      a list, or `2: 7 days` lines, or one answer per line; - is standard input
"""

_ANSWERS = "answers in the order of the questions; a step name as first argument selects its questions"

Asked = tuple[tuple[str, str, str], ...]  # step, file, question


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("answers", nargs="*", metavar="[STEP] ANSWER", help=_ANSWERS)
    parser.add_argument("--answer", action="append", default=[], metavar="N=TEXT", help="the answer to question N")
    parser.add_argument("--file", default="", metavar="F", help="read the answers from a file")
    parser.add_argument("--list", action="store_true", help="only list the open questions")
    decisions.add_options(parser)


def answer(args: Namespace) -> int:
    command = CommandContext()
    run = command.run(args.run)
    context = command.work(run).context
    step = _step(args, _asked(context))
    asked = _asked(context, step)
    if args.list:
        return _list(args, asked, context)
    if not asked:
        go = next_command.continue_command(context)
        raise UsageError(f"no open questions in run {run.name}", f"{go}   or   doflow status")
    given = _given(args, asked)
    with decisions.open_run(run.name) as (command, work):
        if _asked(work.context, step) != asked:
            raise UsageError("the questions have changed in the meantime; nothing was written", "doflow answer --list")
        command.session.begin(work)
        return _write(args, asked, given, work)


def _step(args: Namespace, asked: Asked) -> str:
    """Remove and return the first argument if it is a step with open questions; '' = all steps."""
    named = bool(args.answers) and args.answers[0] in {step for step, _, _ in asked}
    return str(args.answers.pop(0)) if named else ""


def _asked(context: RunContext, only: str = "") -> Asked:
    """Every open question of the steps that are done (or of one of them), in the order of the flow."""
    done = [name for name in context.order.active() if name in context.record.steps and only in ("", name)]
    steps = [step for name in done if (step := context.flow.step(name)) and step.clarify]
    return tuple((step.id, *question) for step in steps for question in gate.open_questions(step, context))


def _list(args: Namespace, asked: Asked, context: RunContext) -> int:
    run = context.run.name
    rows = [
        {"number": number, "step": step, "file": path, "question": question}
        for number, (step, path, question) in enumerate(asked, 1)
    ]
    text = f"{_count(asked)} open in run {run}:{_lines(asked)}\n{_how(asked)}"
    return output.report(
        args.json, {"run": run, "questions": rows}, text if asked else f"no open questions in run {run}"
    )


def _given(args: Namespace, asked: Asked) -> dict[int, str]:
    if args.file and (args.answers or args.answer):
        raise UsageError("--file cannot be combined with other answers", "use one of them")
    if args.file:
        return number_answers(answers_from_file(args.file), len(asked))
    if args.answers or args.answer:
        return number_answers(answers_from_arguments(args.answers, args.answer), len(asked))
    if not sys.stdin.isatty():
        raise UsageError(f"{_count(asked)} open:{_lines(asked)}", _how(asked))
    return _interview(asked)


def _interview(asked: Asked) -> dict[int, str]:
    """Ask one question after the other; an empty line asks again, end of input leaves the rest open."""
    output.say(f"{_count(asked)} open; ^D leaves the rest open")
    given: dict[int, str] = {}
    for number, (_, path, question) in enumerate(asked, 1):
        output.say(f"\n{number}. {question}   ({path})")
        text = ""
        while not text:
            sys.stdout.write("> ")
            sys.stdout.flush()
            line = sys.stdin.readline()
            if not line:
                output.say()
                if given:
                    return given
                raise UsageError("nothing was answered", _how(asked))
            text = line.strip()
        given[number] = text
    return given


def _write(args: Namespace, asked: Asked, given: dict[int, str], work: ActiveRun) -> int:
    context = work.context
    paths = tuple(dict.fromkeys(asked[number - 1][1] for number in given))
    for path in paths:
        numbers = [number for number, (_, file, _) in enumerate(asked, 1) if file == path]
        step = context.flow.step(asked[numbers[0] - 1][0])
        assert step is not None
        _replace(path, tuple(given.get(number) for number in numbers), step, context)
    pairs = [{"question": asked[number - 1][2], "answer": text} for number, text in sorted(given.items())]
    steps = list(dict.fromkeys(asked[number - 1][0] for number in sorted(given)))
    context.events.add("answered", step=steps[0], files=list(paths), answers=pairs, by=decisions.git_user_name(context))
    count = output.count_of(len(given), "answer")
    made = commit.commit_lock(context, f"Answer {', '.join(steps)}: {count}", paths, steps[0])
    left = _asked(context)
    data = {"files": list(paths), "answered": len(given), "left": len(left), "commit": made}
    message = f"{count} written into {', '.join(paths)}"
    if not left:
        return decisions.conclude(args, work, f"the questions of {steps[0]} are answered", message, **data)
    waits = context.flow.step(left[0][0])
    assert waits is not None
    gate.ask_questions(waits, context)
    work.status_file.finish("paused")
    message += f"\n{_count(left)} left:{_lines(left)}\n{_how(left)}"
    return decisions.print_result(args, context, message, **data)


def _replace(path: str, texts: tuple[str | None, ...], step: Step, context: RunContext) -> None:
    """Write the answers; the step stays done with the new content, and manual edits stay the user's."""
    author = "person" if freshness.has_manual_edit(path, context) else "answer"
    full = context.root / path
    text = markdown.insert_answers(full.read_bytes().decode("utf-8", "surrogateescape"), texts)  # line ends as they are
    atomic_files.write_file(full, text.encode("utf-8", "surrogateescape"), full.stat().st_mode & 0o777)
    record = context.record.steps[step.id]
    made = {**record.made, path: context.files.digest(path)}
    context.complete(step.id, replace(record, made=made), {path: Artifact(context.files.digest(path), author, step.id)})


def _count(asked: Asked) -> str:
    return output.count_of(len(asked), "question")


def _lines(asked: Asked) -> str:
    return "".join(f"\n  {number}. {question}   ({path})" for number, (_, path, question) in enumerate(asked, 1))


def _how(asked: Asked) -> str:
    if len(asked) == 1:
        return 'doflow answer "…"'
    places = " ".join(f'"answer {number}"' for number in range(1, len(asked) + 1))
    return f'doflow answer {places}   or one of them: doflow answer --answer {len(asked)}="…"'


Numbered = Mapping[int, str]
Given = tuple[Numbered, Sequence[str]]  # for the question with a number; for the others in their order

_KEY = re.compile(r"^(\d+)(:(?:\s|$))", re.M)
_YAML = re.compile(r"(?:-|\d+:)(?:\s|$)")


def number_answers(given: Given, questions: int) -> dict[int, str]:
    """Answers by question number; raises for empty or surplus answers."""
    numbered, rest = given
    found = dict(numbered)
    odd = [number for number in found if not 1 <= number <= questions]
    if odd:
        raise UsageError(f"no question {odd[0]} (open questions: {questions})", "doflow answer --list")
    free = [number for number in range(1, questions + 1) if number not in found]
    if len(rest) > len(free):
        raise UsageError(f"{len(rest) + len(numbered)} answers for {questions} open questions", "doflow answer --list")
    found.update(zip(free, rest, strict=False))
    empty = [number for number, text in found.items() if not text.strip()]
    if empty:
        hint = "omit it to keep the question open, or give it: doflow answer --answer " + f'{empty[0]}="…"'
        raise UsageError(f"the answer to question {empty[0]} is empty; nothing was written", hint)
    if not found:
        raise UsageError("no answers given; nothing was written", "doflow answer --list")
    return {number: text.strip() for number, text in sorted(found.items())}


def answers_from_arguments(rest: Sequence[str], flags: Sequence[str]) -> Given:
    """From the command line: ANSWER … and --answer N=TEXT."""
    numbered: dict[int, str] = {}
    for flag in flags:
        number, equals, text = flag.partition("=")
        if not equals or not number.strip().isdecimal():
            raise UsageError(f"--answer {flag!r} has no question number", 'doflow answer --answer 2="…"')
        if int(number) in numbered:
            raise UsageError(f"question {int(number)} is answered twice", "keep one of the two")
        numbered[int(number)] = text
    return numbered, rest


def answers_from_file(name: str) -> Given:
    """From a file: a YAML or JSON list, a map from number to answer, or one answer per line; `-` = standard input."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as cause:
        raise UsageError(f"{name}: cannot be read ({cause.strerror})", "doflow answer --file answers.yaml") from cause
    except UnicodeDecodeError as cause:
        raise UsageError(f"{name}: is not UTF-8", "save it as UTF-8") from cause
    bare = text.strip()
    if bare[:1] in ("[", "{") and not name.endswith((".yaml", ".yml")):
        try:
            return _values(json.loads(bare, parse_int=str, parse_float=str), name)
        except ValueError as cause:
            hint = 'write ["first answer", "second answer"]'
            raise UsageError(f"{name}: this is not JSON ({cause})", hint) from cause
    if name.endswith((".yaml", ".yml")) or _YAML.match(bare):
        return _values(_yaml(text, name), name)
    return {}, [line.strip() for line in bare.splitlines() if line.strip()]


def _yaml(text: str, name: str) -> Any:
    """Parse as text: `yes` and `1.50` are answers, not typed values."""
    quoted = _KEY.sub(r'"\1"\2', text)
    inner = "".join(f"  {line}" for line in quoted.splitlines(keepends=True))
    try:
        return _words(loader.parse_document(f"answers:\n{inner}\n", name).root.value[0][1])
    except FlowError as cause:
        what = cause.problems[0].message
        line = max(1, cause.problems[0].line - 1)
        raise UsageError(f"{name}:{line}: {what}", "write `- answer` lines, or `2: answer` lines") from cause


def _words(node: Any) -> Any:
    """A tree of YAML nodes as lists, maps and unconverted text."""
    if isinstance(node.value, str):
        return node.value
    if node.value and isinstance(node.value[0], tuple):
        return {key.value: _words(value) for key, value in node.value}
    return [_words(entry) for entry in node.value]


def _values(value: Any, name: str) -> Given:
    if isinstance(value, dict):
        odd = next((key for key in value if not str(key).isdecimal()), None)
        if odd is not None:
            raise UsageError(f"{name}: {odd!r} is not a question number", "write `2: answer`")
        return {int(key): _text(text, name) for key, text in value.items()}, ()
    if isinstance(value, list):
        return {}, [_text(text, name) for text in value]
    return {}, [_text(value, name)]


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise UsageError(f"{name}: an answer must be plain text", "write one text per question")
    return value
