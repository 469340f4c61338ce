"""`doflow signal`: what the layers of a pipeline told each other, what waits for a person, and the person's answer."""

from __future__ import annotations

import argparse
import getpass
import os

from doflow.cli import output as commands
from doflow.cli.commands.supervise import runner
from doflow.supervise.guardian import terminal
from doflow.supervise.signals import types as kinds
from doflow.supervise.signals.types import KINDS, Signal
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError

ABOUT = "What the layers of a pipeline told each other; what waits for you; your answer."
EXAMPLES = """\
  doflow signal list                                open questions and waiting signals of every pipeline
  doflow signal answer input.impl_auth 2            your answer: an option's number, or any text
  doflow signal log --pipeline auth                 everything that was said, with its time
  doflow signal clean --days 0 --pipeline auth"""


def arguments(parser: argparse.ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="list|log|answer|clean", required=True)
    one = deeds.add_parser("list", help="what waits: questions to you, signals not acted on yet")
    runner.where(one)
    one = deeds.add_parser("log", help="every signal, by time")
    runner.where(one)
    one = deeds.add_parser("answer", help="answer a question")
    one.add_argument("question", metavar="ID", help="the question, or the first letters of its id")
    one.add_argument("text", metavar="TEXT", help="the answer, or the number of an option")
    runner.where(one)
    one = deeds.add_parser("clean", help="remove old signals that were dealt with")
    one.add_argument("--days", type=float, default=None, help="older than this (default: supervision.keep_days)")
    runner.where(one)


def signal(args: argparse.Namespace) -> int:
    place = runner.placed(args)
    found = [place] if place.pipeline else [place, *_others(place)]
    deeds = {"list": _list, "log": _log, "answer": _answer, "clean": _clean}
    return deeds[args.deed](found, args)


def _others(place: Place) -> list[Place]:
    """Every pipeline with a folder of signals."""
    if not os.path.isdir(place.base):
        return []
    names = sorted(entry.name for entry in os.scandir(place.base) if entry.is_dir())
    known = [name for name in names if os.path.isdir(os.path.join(place.base, name, "processed"))]
    return [runner.placed(argparse.Namespace(pipeline=name, signals_dir=place.base)) for name in known]


def _list(found: list[Place], args: argparse.Namespace) -> int:
    questions = [(place, one) for place in found for one in terminal.open_questions(place)]
    waiting = [(place, one) for place in found for one in place.store.waiting() if one.kind != "ESCALATION"]
    if args.json:
        commands.say_json(
            {"questions": [_plain(*pair) for pair in questions], "waiting": [_plain(*pair) for pair in waiting]}
        )
        return 0
    for place, one in questions:
        commands.say(f"{place.pipeline or '-'}  {one.reply or one.token}  {one.at}\n  {one.payload['issue']}")
        for number, option in enumerate(one.payload["options"], 1):
            commands.say(f"    {number}. {option}")
    if waiting:
        commands.table([(place.pipeline or "-", one.at, one.kind, one.target, one.node) for place, one in waiting])
    if questions:
        place, one = questions[0]
        more = f" --pipeline {place.pipeline}" if place.pipeline else ""
        commands.say(f"next: doflow signal answer {one.reply or one.token} '…'{more}")
    elif not waiting:
        commands.say("nothing waits")
    return 0


def _log(found: list[Place], args: argparse.Namespace) -> int:
    rows = sorted(((place, one) for place in found for one in place.store.history()), key=lambda pair: pair[1].at)
    if args.json:
        commands.say_json({"signals": [_plain(*pair) for pair in rows]})
    elif rows:
        commands.table(
            [
                (one.at, place.pipeline or "-", f"{one.source} > {one.target}", one.kind, _about(one))
                for place, one in rows
            ]
        )
    else:
        commands.say("nothing was said yet")
    return 0


def _answer(found: list[Place], args: argparse.Namespace) -> int:
    known = [(place, one) for place in found for one in terminal.open_questions(place)]
    fitting = [(place, one) for place, one in known if (one.reply or one.token).startswith(args.question)]
    exact = [(place, one) for place, one in fitting if (one.reply or one.token) == args.question] or fitting
    if len(exact) != 1:
        names = ", ".join(f"{one.reply or one.token} ({place.pipeline})" for place, one in exact or known) or "none"
        words = "is the beginning of several questions" if exact else "is no open question"
        raise UsageError(
            f"{args.question!r} {words}: {names}", "doflow signal list; --pipeline NAME where two are alike"
        )
    place, one = exact[0]
    options = one.payload["options"]
    number = int(args.text) if args.text.isdecimal() else 0
    text = options[number - 1] if 1 <= number <= len(options) else args.text
    path = terminal.answer(place, one, text, _who())
    if args.json:
        commands.say_json({"status": "ok", "question": one.payload["issue"], "answer": text, "file": path})
    else:
        commands.say(f"answered: {text}")
    return 0


def _clean(found: list[Place], args: argparse.Namespace) -> int:
    gone = sum(
        place.store.clean(place.settings.supervision.keep_days if args.days is None else args.days) for place in found
    )
    commands.say_json({"status": "ok", "removed": gone}) if args.json else commands.say(
        f"{gone} old signals are removed"
    )
    return 0


def _plain(place: Place, one: Signal) -> dict[str, object]:
    return {**kinds.plain(one), "question": one.reply or one.token, "file": one.path, "pipeline": place.pipeline}


def _about(one: Signal) -> str:
    said = " ".join(str(one.payload[name]) for name in KINDS[one.kind][2] if one.payload[name] not in ("", None, []))
    return " ".join(said.split())[:120]


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
