"""`doflow guardian`: run pipelines under supervision, and the guardian's five tools, which print one JSON object each."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from doflow.cli import output
from doflow.cli.commands import runner
from doflow.supervise.guardian import loop, stop, terminal
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import tools
from doflow.util import timestamps
from doflow.util.errors import UsageError

ABOUT = "Layers 0 and 1: run pipelines under supervision. Each tool prints one JSON object."
EXAMPLES = """\
  doflow guardian launch auth.dot shop.dot       run several pipelines, answer their questions
  doflow guardian run auth.dot                   one pipeline, headless
  doflow guardian stop auth.dot                  stop everything that works on it; `launch` resumes it
  doflow guardian wait-for-signal --source runner --timeout 30
  doflow guardian respond-to-runner VALIDATION_FAILED --node impl_auth --feedback "two tests fail"
  doflow guardian escalate-to-terminal --issue "Which provider?" --option A --option B"""


_TO_TERMINAL = ("ESCALATION", "PIPELINE_COMPLETE", "GUARDIAN_ERROR")


def arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="TOOL", required=True)
    one = deeds.add_parser("run", help="run one pipeline, headless, to its end")
    one.add_argument("pipeline", metavar="PIPELINE", help="its .dot file, or the name it was started with")
    one.add_argument("--no-wait", action="store_true", help="exit with 2 when an answer from a person is needed")
    _common(one)
    one = deeds.add_parser("launch", help="run pipelines, restart crashed guardians, show and answer questions")
    one.add_argument("pipelines", nargs="+", metavar="PIPELINE", help="their .dot files")
    one.add_argument("--no-wait", action="store_true", help="exit with 2 when an answer from a person is needed")
    _common(one)
    one = deeds.add_parser("stop", help="stop a pipeline's guardian, runners and sessions; finished work is kept")
    one.add_argument("pipeline", metavar="PIPELINE", help="its .dot file, or the name it was started with")
    _common(one)
    runner.add_node_options(deeds.add_parser("spawn-runner", help="start the runner of a node"))
    runner.add_wait_options(deeds.add_parser("wait-for-signal", help="wait for a signal"))
    one = deeds.add_parser("read-signal", help="read one signal file")
    one.add_argument("file", help="its path, or its name in the signals folder")
    runner.add_pipeline_options(one)
    runner.add_signal_options(deeds.add_parser("respond-to-runner", help="reply to a runner"), "guardian")
    one = deeds.add_parser("escalate-to-terminal", help="report to the person, or ask")
    one.add_argument("kind", metavar="TYPE", nargs="?", default="ESCALATION", help=", ".join(_TO_TERMINAL))
    one.add_argument("--issue", default=None, help="what a person must decide")
    one.add_argument("--summary", default=None, help="summary of a complete pipeline")
    one.add_argument("--error", default=None, help="the error message")
    one.add_argument("--stack-trace", default=None, help="its stack trace")
    one.add_argument("--option", action="append", default=None, help="an option to choose; may be repeated")
    runner.add_pipeline_options(one)


def guardian(args: Namespace) -> int:
    if args.deed == "launch":
        named = [Namespace(pipeline=name, signals_dir=args.signals_dir) for name in args.pipelines]
        stdin = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
        found = [runner.find_context(one) for one in named]
        return terminal.launch(args.pipelines, found, os.environ, _say(args), stdin, not args.no_wait, args.check)
    context = runner.find_context(args)
    if args.deed == "run":
        return loop.run(context, os.environ, _say(args), wait=not args.no_wait, check=args.check)
    if args.deed == "stop":
        return _stop(context, args)
    if args.deed == "wait-for-signal":
        return runner.wait(context, args, args.target or ("runner" if args.source == "guardian" else "guardian"))
    if args.deed == "read-signal":
        answer = tools.read_signal_file(context, args.file)
    elif args.deed == "spawn-runner":
        answer = tools.spawn_runner(context, args)
    else:
        if args.deed == "escalate-to-terminal" and args.kind.upper() not in _TO_TERMINAL:
            hint = "ESCALATION, PIPELINE_COMPLETE or GUARDIAN_ERROR"
            raise UsageError(f"{args.kind} is not a signal to the terminal", hint)
        answer = tools.send(context, args.kind, args, "guardian")
    output.say_json(answer)
    return 0


def _stop(context: PipelineContext, args: Namespace) -> int:
    say = _say(args)
    ended = stop.stop(context, say)
    again = f"doflow guardian launch {os.path.relpath(context.dot)}"
    say(f"{context.pipeline}: {'stopped' if ended else 'nothing was running'}; resume with: {again}")
    return 0


def _common(parser: ArgumentParser) -> None:
    parser.add_argument("--check", type=float, default=2.0, metavar="SECONDS", help="how often to check the runners")
    parser.add_argument("--signals-dir", default="", metavar="PATH", help="the signals folder ($DOFLOW_SIGNALS)")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")


def _say(args: Namespace) -> Callable[[str], None]:
    """Print progress, each line with its time."""

    def say(text: str) -> None:
        at = timestamps.format_microseconds()
        if args.json:
            sys.stdout.write(json.dumps({"at": at, "message": text}) + "\n")
        else:
            output.say(f"{at[11:19]} {text}")
        sys.stdout.flush()

    return say
