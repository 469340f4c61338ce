"""`doflow hook EVENT`: only its help. Hook calls are answered by `hooks.handler`, before commands are imported."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from doflow.hooks import handler
from doflow.hooks.session_store import DEFAULT
from doflow.util.errors import UsageError

ABOUT = """\
Called by an agent's hooks: the event as JSON on standard input, the answer as JSON on standard output and as exit code
(0 = allowed, 2 = blocked, with the reason on standard error too). `doflow hooks install` adds it to an agent's settings."""
EXAMPLES = """\
  echo '{"session_id": "s1", "tool_name": "Agent", "tool_input": {"subagent_type": "Explore"}}' | doflow hook PreToolUse
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("event", metavar="EVENT", help=", ".join(handler.EVENTS))
    parser.add_argument("--machine", metavar="NAME", help=f"the machine that decides (default: {DEFAULT})")
    parser.add_argument("--state", metavar="DIR", help="the state folder (default: ~/.claude/state)")


def hook(args: Namespace) -> int:
    raise UsageError("doflow hook: missing event", handler.USAGE)
