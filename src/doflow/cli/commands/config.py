"""`doflow config`: every setting with its value and origin."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from doflow.cli.output import say_json, table
from doflow.config import project, settings
from doflow.util.errors import UsageError

ABOUT = "Show every setting, its value and where it comes from: a default, doflow.yaml or DOFLOW_SET_<PATH>."
EXAMPLES = """\
  doflow config
  doflow config agents                       only settings that start with this
  DOFLOW_SET_BUDGET__USD=5 doflow config     an override"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default="", help="only settings whose name starts with this")
    parser.add_argument("--json", action="store_true", help="print JSON")


def config(args: Namespace) -> int:
    root = project.find()
    rows = [row for row in settings.load(root, os.environ).origins if row[0].startswith(args.path)]
    if args.path and not rows:
        raise UsageError(f"no setting starts with {args.path!r}", "doflow config")
    if args.json:
        values = {name: {"value": value, "from": where} for name, value, where in rows}
        say_json({"project": str(root), "settings": values})
    else:
        table([("SETTING", "VALUE", "FROM"), *rows])
    return 0
