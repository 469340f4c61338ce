"""`doflow hooks`: let an agent's own hooks enforce a machine, in its settings of the project, of the user or of this clone."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from doflow.cli import output as commands
from doflow.config import project
from doflow.hooks import install as installing, machine_loader as machines
from doflow.hooks.session_store import DEFAULT

ABOUT = """\
The order of sub-agents, enforced by the hooks of Claude Code or Codex. They are merged into the agent's settings,
everything else in those files stays as it is; `remove` takes them out again."""
EXAMPLES = """\
  doflow hooks install                                 .claude/settings.json, for everybody who works on the project
  doflow hooks install --scope local                   only for you, only here (.claude/settings.local.json)
  doflow hooks install --scope user --machine mine     in all your projects (~/.claude/settings.json)
  doflow hooks install --agent codex                   .codex/hooks.json
  doflow hooks show
  doflow hooks remove
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="install|remove|show", required=True)
    for name, about in (("install", "put them in"), ("remove", "take them out"), ("show", "where they are now")):
        one = verbs.add_parser(name, help=about)
        one.add_argument(
            "--agent", choices=installing.AGENTS, default="claude", help="whose settings (default: claude)"
        )
        one.add_argument("--json", action="store_true", help="one JSON object instead of words")
        if name != "show":
            one.add_argument("--scope", choices=installing.SCOPES, default="project", help="default: project")
        if name == "install":
            one.add_argument("--machine", default=DEFAULT, metavar="NAME", help=f"default: {DEFAULT}")
            words = "name this very Python in the settings, instead of the `doflow` on PATH (always so outside of `project`)"
            one.add_argument("--absolute", action="store_true", help=words)


def hooks(args: argparse.Namespace) -> int:
    root = project.find()
    if args.deed == "show":
        return _show(root, args)
    path = installing.place(args.agent, args.scope, root, os.environ)
    if args.deed == "install":
        machines.compiled(root, args.machine)
        absolute = args.absolute or args.scope != "project"
        changed = installing.install(path, args.agent, args.machine, absolute)
        _installed(path, args, changed, absolute)
    else:
        changed = installing.remove(path)
        words = f"the hooks are out of {path}" if changed else f"there are no hooks of doflow's in {path}"
        _said(args, path, changed, words)
    return 0


def _installed(path: Path, args: argparse.Namespace, changed: bool, absolute: bool) -> None:
    words = f"{path} {'now enforces' if changed else 'enforces already:'} {args.machine}"
    _said(args, path, changed, words)
    if args.json:
        return
    if not absolute and shutil.which("doflow") is None:
        commands.warn(
            "WARNING: `doflow` is not on your PATH, so the agent would not find it: use --absolute, or put it there"
        )
    if args.agent == "codex":
        commands.say("Codex asks once whether to trust new hooks: start `codex` and say yes")
    commands.say("next: doflow machine show   (the order);   doflow machine status   (where a session stands)")


def _said(args: argparse.Namespace, path: Path, changed: bool, words: str) -> None:
    if args.json:
        commands.say_json({"file": str(path), "changed": changed, "scope": args.scope, "agent": args.agent})
    else:
        commands.say(words)


def _show(root: Path, args: argparse.Namespace) -> int:
    rows = []
    for scope in installing.SCOPES:
        if args.agent == "codex" and scope == "local":
            continue
        path = installing.place(args.agent, scope, root, os.environ)
        found = installing.look(path)
        rows.append(
            {"scope": scope, "file": str(path), "machine": found[0].machine if found else "",
             "hooks": {one.event: one.command for one in found}}
        )  # fmt: skip
    if args.json:
        commands.say_json({"agent": args.agent, "scopes": rows})
        return 0
    commands.table(
        [("SCOPE", "MACHINE", "EVENTS", "FILE")]
        + [(str(row["scope"]), str(row["machine"] or "-"), str(len(row["hooks"])), str(row["file"])) for row in rows]
    )
    return 0
