"""`doflow runner`: the runner of a node, and its six tools, each of which prints one JSON object."""

from __future__ import annotations

import argparse
import os

from doflow.cli import output as commands
from doflow.config import project, settings
from doflow.supervise import workspace as places
from doflow.supervise.runner import tools
from doflow.supervise.signals.types import sent_by
from doflow.supervise.workspace import Place

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


def arguments(parser: argparse.ArgumentParser) -> None:
    deeds = parser.add_subparsers(dest="deed", metavar="TOOL", required=True)
    one = deeds.add_parser("run", help="watch the orchestrator of a node until the guardian lets it go")
    one.add_argument("--node", required=True, help="the node's id")
    one.add_argument("--check", type=float, default=1.0, metavar="SECONDS", help="how often the pane is looked at")
    where(one)
    one = deeds.add_parser("spawn-orchestrator", help="start the orchestrator of a node in tmux")
    about_node(one)
    one = deeds.add_parser("capture-output", help="what the pane shows")
    session(one)
    one.add_argument("--lines", type=int, default=100, help="how many lines, from the end (default: 100)")
    one = deeds.add_parser("send-to-orchestrator", help="type something, or press keys")
    session(one)
    one.add_argument("--message", default=None, help="the text; Enter is pressed after it")
    one.add_argument("--keys", nargs="+", default=None, metavar="KEY", help="keys as tmux names them: 1, Escape, Enter")
    one = deeds.add_parser("signal-guardian", help="tell the guardian something")
    signal(one, "runner")
    one = deeds.add_parser("wait-for-guardian", help="sleep until the guardian answers")
    waiting(one)
    one = deeds.add_parser("check-orchestrator-alive", help="is the session there? (exit 0 either way)")
    session(one)


def runner(args: argparse.Namespace) -> int:
    place = placed(args)
    if args.deed == "run":
        from doflow.supervise.runner import loop as running

        return running.start(place, args.node, os.environ, args.check)
    if args.deed == "wait-for-guardian":
        return wait(place, args, "runner")
    if args.deed == "signal-guardian":
        found = tools.send(place, args.kind, args, "runner")
    else:
        deeds = {
            "spawn-orchestrator": tools.spawn_orchestrator, "capture-output": tools.capture,
            "send-to-orchestrator": tools.send_to, "check-orchestrator-alive": tools.alive,
        }  # fmt: skip
        found = deeds[args.deed](place, args)
    commands.say_json(found)
    return 0


def wait(place: Place, args: argparse.Namespace, target: str) -> int:
    """A signal as JSON; none in time is said so, and is no success."""
    if tools.wait(place, args, target, _hand):
        return 0
    words = f"no signal for {args.target or target} came within {args.timeout:g} seconds"
    commands.say_json(
        {"status": "timeout", "message": words, "hint": f"doflow signal list; folder: {place.store.folder}"}
    )
    return 1


def _hand(found: dict[str, object]) -> None:
    import sys

    commands.say_json(found)
    sys.stdout.flush()


def placed(args: argparse.Namespace) -> Place:
    root = project.find()
    chosen = settings.load(root, os.environ)
    pipeline = args.pipeline or os.environ.get("DOFLOW_PIPELINE", "")
    return places.find(str(root), chosen, os.environ, pipeline, args.signals_dir or "")


def where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline", default="", help="the pipeline: its name or its .dot file ($DOFLOW_PIPELINE)")
    parser.add_argument("--signals-dir", default="", metavar="PATH", help="the folder of signals ($DOFLOW_SIGNALS)")
    parser.add_argument("--json", action="store_true", help="say errors as JSON too (the tools always do)")


def about_node(parser: argparse.ArgumentParser) -> None:
    """The options that say what a node is about; a pipeline's DOT file says the rest."""
    parser.add_argument("--node", required=True, help="the node's id")
    parser.add_argument("--prd", dest="prd_ref", default="", help="the PRD, for example PRD-AUTH-001")
    parser.add_argument("--prd-section", default="", help="the section of it")
    parser.add_argument("--solution-design", default="", metavar="PATH", help="the solution design")
    parser.add_argument("--acceptance", default="", help="the acceptance criteria")
    parser.add_argument("--target-dir", default="", metavar="PATH", help="the folder to work in")
    parser.add_argument(
        "--worktree", default="", metavar="PATH", help="a git worktree to work in; made if it is missing"
    )
    parser.add_argument("--bead-id", default="", help="the bead")
    parser.add_argument("--worker-type", default="", help="the kind of worker")
    parser.add_argument("--agent", default="", help="the agent profile (default: as the node and the settings say)")
    parser.add_argument("--attempt", type=int, default=0, help="the number of the attempt")
    where(parser)


def session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", default="", help="the tmux session, for example orch-impl-auth")
    parser.add_argument("--node", default="", help="the node instead: impl_auth works in orch-impl-auth")
    where(parser)


def waiting(parser: argparse.ArgumentParser, source: str = "") -> None:
    parser.add_argument("--source", default=source, help="from whom: runner, guardian")
    parser.add_argument("--target", default="", help="to whom: guardian, runner, terminal")
    parser.add_argument("--type", default="", help="only this kind of signal")
    parser.add_argument("--node", default="", help="only about this node")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="how long (default: 300)")
    parser.add_argument("--peek", action="store_true", help="leave it where it is")
    where(parser)


def signal(parser: argparse.ArgumentParser, source: str) -> None:
    parser.add_argument("kind", metavar="TYPE", help=", ".join(sent_by(source)))
    parser.add_argument("--node", default=None, help="the node's id")
    parser.add_argument("--option", action="append", default=None, help="an answer to choose from; may be repeated")
    for name in sorted(set(tools.OPTIONS.values()) - {"option", "duration", "exit_code", "retry_count"}):
        parser.add_argument(f"--{name.replace('_', '-')}", default=None, help="text")
    parser.add_argument("--duration", type=float, default=None, help="seconds")
    for name in ("--exit-code", "--retry-count"):
        parser.add_argument(name, type=int, default=None, help="a number")
    where(parser)
