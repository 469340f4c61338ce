"""`doflow config`: every setting with its value and where it came from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from doflow.cli.output import say_json, table
from doflow.config import project, settings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "Every setting, its value, and where it came from: a default, doflow.yaml, or DOFLOW_SET_<PATH>."
EXAMPLES = """\
  doflow config
  doflow config agents                       only what begins so
  DOFLOW_SET_BUDGET__USD=5 doflow config     an override, as doit would see it"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default="", help="only settings whose name begins so")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def config(args: Namespace) -> int:
    root = project.find()
    rows = [row for row in settings.load(root, os.environ).origins if row[0].startswith(args.path)]
    if args.path and not rows:
        from doflow.util.errors import UsageError

        raise UsageError(f"no setting begins with {args.path!r}", "doflow config")
    if args.json:
        values = {name: {"value": value, "from": where} for name, value, where in rows}
        say_json({"project": str(root), "settings": values})
    else:
        table([("SETTING", "VALUE", "FROM"), *rows])
    return 0
