"""`doflow hook EVENT`: only its help is here. The answer to an agent's question must not wait for this: `hooks.hook`."""

from __future__ import annotations

import argparse

from doflow.hooks import handler as answering
from doflow.hooks.session_store import DEFAULT
from doflow.util.errors import UsageError

ABOUT = """\
What an agent's hooks call: its question as JSON on standard input, the answer as JSON on standard output and by exit code
(0 = go on, 2 = blocked, with the reason on standard error too). `doflow hooks install` puts it into an agent's settings."""
EXAMPLES = """\
  echo '{"session_id": "s1", "tool_name": "Agent", "tool_input": {"subagent_type": "Explore"}}' | doflow hook PreToolUse
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("event", metavar="EVENT", help=", ".join(answering.EVENTS))
    parser.add_argument("--machine", metavar="NAME", help=f"the machine that decides (default: {DEFAULT})")
    parser.add_argument("--state", metavar="DIR", help="where states are kept (default: ~/.claude/state)")


def hook(args: argparse.Namespace) -> int:
    raise UsageError("doflow hook: which event?", answering.USAGE)
