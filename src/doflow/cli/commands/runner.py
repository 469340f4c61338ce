"""`doflow runner`: the runner of a node, and its six tools, which print one JSON object each."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from doflow.cli import output
from doflow.config import project, settings
from doflow.supervise import pipeline_context
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import loop, tools
from doflow.supervise.signal_store import kinds_sent_by

ABOUT = (
    "Layer 2 of a supervised pipeline: watch one orchestrator in its tmux session. Each tool prints one JSON object."
)
EXAMPLES = """\
  doflow runner spawn-orchestrator --node impl_auth --prd PRD-AUTH-001 --worktree trees/auth
  doflow runner capture-output --session orch-impl-auth --lines 50
  doflow runner send-to-orchestrator --node impl_auth --message "Use SQLite."
  doflow runner signal-guardian NEEDS_REVIEW --node impl_auth --evidence /tmp/evidence.txt
  doflow runner wait-for-guardian --node impl_auth --timeout 600
  doflow runner check-orchestrator-alive --session orch-impl-auth"""


def arguments(parser: ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="TOOL", required=True)
    one = deeds.add_parser("run", help="watch the orchestrator of a node until the guardian ends it")
    one.add_argument("--node", required=True, help="the node's id")
    one.add_argument("--check", type=float, default=1.0, metavar="SECONDS", help="how often to check the pane")
    add_pipeline_options(one)
    add_node_options(deeds.add_parser("spawn-orchestrator", help="start the orchestrator of a node in tmux"))
    one = deeds.add_parser("capture-output", help="what the pane shows")
    add_session_options(one)
    one.add_argument("--lines", type=int, default=100, help="how many lines, from the end (default: 100)")
    one = deeds.add_parser("send-to-orchestrator", help="type something, or press keys")
    add_session_options(one)
    one.add_argument("--message", default=None, help="the text; Enter is pressed after it")
    one.add_argument("--keys", nargs="+", default=None, metavar="KEY", help="keys as tmux names them: 1, Escape, Enter")
    add_signal_options(deeds.add_parser("signal-guardian", help="send a signal to the guardian"), "runner")
    add_wait_options(deeds.add_parser("wait-for-guardian", help="wait for a reply of the guardian"))
    alive = "is the session running? (exits with 0 either way)"
    add_session_options(deeds.add_parser("check-orchestrator-alive", help=alive))


def runner(args: Namespace) -> int:
    context = find_context(args)
    if args.deed == "run":
        return loop.start(context, args.node, os.environ, args.check)
    if args.deed == "wait-for-guardian":
        return wait(context, args, "runner")
    if args.deed == "signal-guardian":
        found = tools.send(context, args.kind, args, "runner")
    else:
        deeds = {
            "spawn-orchestrator": tools.spawn_orchestrator, "capture-output": tools.capture,
            "send-to-orchestrator": tools.send_to, "check-orchestrator-alive": tools.check_alive,
        }  # fmt: skip
        found = deeds[args.deed](context, args)
    output.say_json(found)
    return 0


def wait(context: PipelineContext, args: Namespace, target: str) -> int:
    """Print a signal as JSON; a timeout is reported and isn't a success."""
    if tools.wait_for_signal(context, args, target, _print_signal):
        return 0
    message = f"no signal for {args.target or target} within {args.timeout:g} seconds"
    hint = f"doflow signal list; folder: {context.store.folder}"
    output.say_json({"status": "timeout", "message": message, "hint": hint})
    return 1


def _print_signal(found: dict[str, object]) -> None:
    output.say_json(found)
    sys.stdout.flush()


def find_context(args: Namespace) -> PipelineContext:
    root = project.find()
    chosen = settings.load(root, os.environ)
    pipeline = args.pipeline or os.environ.get("DOFLOW_PIPELINE", "")
    return pipeline_context.find_context(str(root), chosen, os.environ, pipeline, args.signals_dir or "")


def add_pipeline_options(parser: ArgumentParser) -> None:
    parser.add_argument("--pipeline", default="", help="the pipeline: its name or its .dot file ($DOFLOW_PIPELINE)")
    parser.add_argument("--signals-dir", default="", metavar="PATH", help="the signals folder ($DOFLOW_SIGNALS)")
    parser.add_argument("--json", action="store_true", help="report errors as JSON too (the tools always do)")


def add_node_options(parser: ArgumentParser) -> None:
    """Options that describe a node; the rest comes from the pipeline's DOT file."""
    parser.add_argument("--node", required=True, help="the node's id")
    parser.add_argument("--prd", dest="prd_ref", default="", help="the PRD, for example PRD-AUTH-001")
    parser.add_argument("--prd-section", default="", help="its section")
    parser.add_argument("--solution-design", default="", metavar="PATH", help="the solution design")
    parser.add_argument("--acceptance", default="", help="the acceptance criteria")
    parser.add_argument("--target-dir", default="", metavar="PATH", help="the folder to work in")
    parser.add_argument("--worktree", default="", metavar="PATH", help="a git worktree to work in; created if missing")
    parser.add_argument("--bead-id", default="", help="the bead")
    parser.add_argument("--worker-type", default="", help="the kind of worker")
    parser.add_argument("--agent", default="", help="the agent profile (default: from the node and the settings)")
    parser.add_argument("--attempt", type=int, default=0, help="the number of the attempt")
    add_pipeline_options(parser)


def add_session_options(parser: ArgumentParser) -> None:
    parser.add_argument("--session", default="", help="the tmux session, for example orch-impl-auth")
    parser.add_argument("--node", default="", help="the node instead: impl_auth works in orch-impl-auth")
    add_pipeline_options(parser)


def add_wait_options(parser: ArgumentParser) -> None:
    parser.add_argument("--source", default="", help="sender: runner, guardian")
    parser.add_argument("--target", default="", help="receiver: guardian, runner, terminal")
    parser.add_argument("--type", default="", help="only this kind of signal")
    parser.add_argument("--node", default="", help="only for this node")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="how long (default: 300)")
    parser.add_argument("--peek", action="store_true", help="don't mark it as processed")
    add_pipeline_options(parser)


def add_signal_options(parser: ArgumentParser, source: str) -> None:
    parser.add_argument("kind", metavar="TYPE", help=", ".join(kinds_sent_by(source)))
    parser.add_argument("--node", default=None, help="the node's id")
    parser.add_argument("--option", action="append", default=None, help="an option to choose; may be repeated")
    for name in sorted(set(tools.OPTIONS.values()) - {"option", "duration", "exit_code", "retry_count"}):
        parser.add_argument(f"--{name.replace('_', '-')}", default=None, help="text")
    parser.add_argument("--duration", type=float, default=None, help="seconds")
    for name in ("--exit-code", "--retry-count"):
        parser.add_argument(name, type=int, default=None, help="a number")
    add_pipeline_options(parser)
