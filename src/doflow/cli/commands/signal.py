"""`doflow signal`: signals between the layers of a pipeline, open questions, and answers to them."""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentParser, Namespace

from doflow.cli import output
from doflow.cli.commands import runner
from doflow.supervise import signal_store
from doflow.supervise.guardian import terminal
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_store import KINDS, Signal
from doflow.util.errors import UsageError

ABOUT = "Signals between the layers of a pipeline; open questions; your answers."
EXAMPLES = """\
  doflow signal list                                open questions and waiting signals of every pipeline
  doflow signal answer input.impl_auth 2            your answer: an option's number, or any text
  doflow signal log --pipeline auth                 every signal, with its time
  doflow signal clean --days 0 --pipeline auth"""


def arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="list|log|answer|clean", required=True)
    runner.add_pipeline_options(deeds.add_parser("list", help="open questions, and signals that are not handled yet"))
    runner.add_pipeline_options(deeds.add_parser("log", help="every signal, by time"))
    one = deeds.add_parser("answer", help="answer a question")
    one.add_argument("question", metavar="ID", help="the question's ID or a prefix of it")
    one.add_argument("text", metavar="TEXT", help="the answer, or the number of an option")
    runner.add_pipeline_options(one)
    one = deeds.add_parser("clean", help="remove old processed signals")
    one.add_argument("--days", type=float, default=None, help="older than this (default: supervision.keep_days)")
    runner.add_pipeline_options(one)


def signal(args: Namespace) -> int:
    context = runner.find_context(args)
    found = [context] if context.pipeline else [context, *_others(context)]
    deeds = {"list": _list, "log": _log, "answer": _answer, "clean": _clean}
    return deeds[args.deed](found, args)


def _others(context: PipelineContext) -> list[PipelineContext]:
    """Every pipeline with a signals folder."""
    if not os.path.isdir(context.base):
        return []
    names = sorted(entry.name for entry in os.scandir(context.base) if entry.is_dir())
    known = [name for name in names if os.path.isdir(os.path.join(context.base, name, "processed"))]
    return [runner.find_context(Namespace(pipeline=name, signals_dir=context.base)) for name in known]


def _list(found: list[PipelineContext], args: Namespace) -> int:
    questions = [(context, one) for context in found for one in terminal.open_questions(context)]
    waiting = [(context, one) for context in found for one in context.store.waiting() if one.kind != "ESCALATION"]
    if args.json or not (questions or waiting):
        data = {"questions": [_to_dict(*pair) for pair in questions], "waiting": [_to_dict(*pair) for pair in waiting]}
        return output.report(args.json, data, "no open questions or signals")
    for context, one in questions:
        output.say(f"{context.pipeline or '-'}  {one.reply or one.token}  {one.at}\n  {one.payload['issue']}")
        for number, option in enumerate(one.payload["options"], 1):
            output.say(f"    {number}. {option}")
    if waiting:
        output.table([(context.pipeline or "-", one.at, one.kind, one.target, one.node) for context, one in waiting])
    if questions:
        context, one = questions[0]
        more = f" --pipeline {context.pipeline}" if context.pipeline else ""
        output.say(f"next: doflow signal answer {one.reply or one.token} '…'{more}")
    return 0


def _log(found: list[PipelineContext], args: Namespace) -> int:
    sent = sorted(((context, one) for context in found for one in context.store.history()), key=lambda pair: pair[1].at)
    if args.json or not sent:
        return output.report(args.json, {"signals": [_to_dict(*pair) for pair in sent]}, "no signals yet")
    output.table(
        (one.at, context.pipeline or "-", f"{one.source} > {one.target}", one.kind, _about(one))
        for context, one in sent
    )
    return 0


def _answer(found: list[PipelineContext], args: Namespace) -> int:
    known = [(context, one) for context in found for one in terminal.open_questions(context)]
    fitting = [(context, one) for context, one in known if (one.reply or one.token).startswith(args.question)]
    exact = [(context, one) for context, one in fitting if (one.reply or one.token) == args.question] or fitting
    if len(exact) != 1:
        names = ", ".join(f"{one.reply or one.token} ({context.pipeline})" for context, one in exact or known) or "none"
        words = "matches several questions" if exact else "isn't an open question"
        hint = "list them: doflow signal list; choose one with --pipeline NAME"
        raise UsageError(f"{args.question!r} {words}: {names}", hint)
    context, one = exact[0]
    options = one.payload["options"]
    number = int(args.text) if args.text.isdecimal() else 0
    text = options[number - 1] if 1 <= number <= len(options) else args.text
    path = terminal.answer(context, one, text, _who())
    data = {"status": "ok", "question": one.payload["issue"], "answer": text, "file": path}
    return output.report(args.json, data, f"answered: {text}")


def _clean(found: list[PipelineContext], args: Namespace) -> int:
    removed = 0
    for context in found:
        removed += context.store.clean(context.settings.supervision.keep_days if args.days is None else args.days)
    return output.report(args.json, {"status": "ok", "removed": removed}, f"removed {removed} old signals")


def _to_dict(context: PipelineContext, one: Signal) -> dict[str, object]:
    where = {"question": one.reply or one.token, "file": one.path, "pipeline": context.pipeline}
    return {**signal_store.signal_to_dict(one), **where}


def _about(one: Signal) -> str:
    text = " ".join(str(one.payload[name]) for name in KINDS[one.kind][2] if one.payload[name] not in ("", None, []))
    return " ".join(text.split())[:120]


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
