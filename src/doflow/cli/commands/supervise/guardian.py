"""`doflow guardian`: run pipelines under supervision, and the guardian's five tools, each of which prints one JSON object."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from doflow.cli import output as commands
from doflow.cli.commands.supervise import runner
from doflow.supervise import workspace as places
from doflow.supervise.runner import tools
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError

ABOUT = "Layers 0 and 1: run pipelines under supervision. Each tool prints one JSON object."
EXAMPLES = """\
  doflow guardian launch auth.dot shop.dot       watch over several pipelines, answer their questions
  doflow guardian run auth.dot                   one pipeline, headless
  doflow guardian stop auth.dot                  end all that works on it; `launch` goes on later
  doflow guardian wait-for-signal --source runner --timeout 30
  doflow guardian respond-to-runner VALIDATION_FAILED --node impl_auth --feedback "two tests fail"
  doflow guardian escalate-to-terminal --issue "Which provider?" --option A --option B"""


def arguments(parser: argparse.ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="TOOL", required=True)
    one = deeds.add_parser("run", help="run one pipeline, headless, to its end")
    one.add_argument("pipeline", metavar="PIPELINE", help="its .dot file, or the name it was begun under")
    one.add_argument("--no-wait", action="store_true", help="exit 2 where only a person can go on")
    _common(one)
    one = deeds.add_parser("launch", help="run pipelines, restart what dies, show and answer what is asked")
    one.add_argument("pipelines", nargs="+", metavar="PIPELINE", help="their .dot files")
    one.add_argument("--no-wait", action="store_true", help="exit 2 where only a person can go on")
    _common(one)
    one = deeds.add_parser("stop", help="end a pipeline's guardian, runners and sessions; what is done stays done")
    one.add_argument("pipeline", metavar="PIPELINE", help="its .dot file, or the name it was begun under")
    _common(one)
    one = deeds.add_parser("spawn-runner", help="start the runner of a node")
    runner.about_node(one)
    one = deeds.add_parser("wait-for-signal", help="sleep until a signal comes")
    runner.waiting(one)
    one = deeds.add_parser("read-signal", help="read one signal file")
    one.add_argument("file", help="its path, or its name in the folder of signals")
    runner.where(one)
    one = deeds.add_parser("respond-to-runner", help="answer a runner")
    runner.signal(one, "guardian")
    one = deeds.add_parser("escalate-to-terminal", help="tell the person something, or ask")
    one.add_argument(
        "kind", metavar="TYPE", nargs="?", default="ESCALATION", help="ESCALATION, PIPELINE_COMPLETE, GUARDIAN_ERROR"
    )
    _escalation(one)


def guardian(args: argparse.Namespace) -> int:
    if args.deed == "launch":
        from doflow.supervise.guardian import terminal

        named = [argparse.Namespace(pipeline=name, signals_dir=args.signals_dir) for name in args.pipelines]
        stdin = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
        found = [runner.placed(one) for one in named]
        return terminal.launch(args.pipelines, found, os.environ, _say(args), stdin, not args.no_wait, args.check)
    place = runner.placed(args)
    if args.deed == "run":
        from doflow.supervise.guardian import loop as guarding

        return guarding.run(place, os.environ, _say(args), wait=not args.no_wait, check=args.check)
    if args.deed == "stop":
        return _stop(place, args)
    if args.deed == "wait-for-signal":
        return runner.wait(place, args, args.target or ("runner" if args.source == "guardian" else "guardian"))
    if args.deed == "read-signal":
        answer = tools.read(place, args.file)
    elif args.deed == "spawn-runner":
        answer = tools.spawn_runner(place, args)
    else:
        if args.deed == "escalate-to-terminal" and args.kind.upper() not in (
            "ESCALATION",
            "PIPELINE_COMPLETE",
            "GUARDIAN_ERROR",
        ):
            raise UsageError(
                f"{args.kind} does not go to the terminal", "ESCALATION, PIPELINE_COMPLETE or GUARDIAN_ERROR"
            )
        answer = tools.send(place, args.kind, args, "guardian")
    commands.say_json(answer)
    return 0


def _stop(place: Place, args: argparse.Namespace) -> int:
    from doflow.supervise.guardian import stop as stopping

    say = _say(args)
    ended = stopping.stop(place, say)
    again = f"doflow guardian launch {os.path.relpath(place.dot)}"
    say(f"{place.pipeline}: {'stopped' if ended else 'nobody worked on it'}; go on: {again}")
    return 0


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", type=float, default=2.0, metavar="SECONDS", help="how often runners are looked at")
    parser.add_argument("--signals-dir", default="", metavar="PATH", help="the folder of signals ($DOFLOW_SIGNALS)")
    parser.add_argument("--json", action="store_true", help="JSON instead of words")


def _escalation(parser: argparse.ArgumentParser) -> None:
    for name, about in (
        ("issue", "what a person has to decide"),
        ("summary", "of a complete pipeline"),
        ("error", "what broke"),
    ):
        parser.add_argument(f"--{name}", default=None, help=about)
    parser.add_argument("--stack-trace", default=None, help="where it broke")
    parser.add_argument("--option", action="append", default=None, help="an answer to choose from; may be repeated")
    runner.where(parser)


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    """Progress for whoever watches, each line with its time."""

    def say(text: str) -> None:
        at = places.now()
        if args.json:
            import json

            sys.stdout.write(json.dumps({"at": at, "message": text}) + "\n")
        else:
            commands.say(f"{at[11:19]} {text}")
        sys.stdout.flush()

    return say
