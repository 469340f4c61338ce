"""`doflow hooks`: install hooks that enforce a machine into an agent's settings: project, user or local."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from doflow.cli import output
from doflow.config import project
from doflow.hooks import install, machine_loader
from doflow.hooks.session_store import DEFAULT

ABOUT = """\
Enforce the order of sub-agents with hooks of Claude Code or Codex. They are merged into the agent's settings; everything
else in those files stays unchanged, and `remove` removes them again."""
EXAMPLES = """\
  doflow hooks install                                 .claude/settings.json, for everyone who works on the project
  doflow hooks install --scope local                   only for you, only here (.claude/settings.local.json)
  doflow hooks install --scope user --machine mine     in all your projects (~/.claude/settings.json)
  doflow hooks install --agent codex                   .codex/hooks.json
  doflow hooks show
  doflow hooks remove
"""


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="install|remove|show", required=True)
    abouts = {"install": "install the hooks", "remove": "remove them", "show": "where they are installed"}
    for name, about in abouts.items():
        one = verbs.add_parser(name, help=about)
        one.add_argument("--agent", choices=install.AGENTS, default="claude", help="whose settings (default: claude)")
        one.add_argument("--json", action="store_true", help="one JSON object instead of text")
        if name != "show":
            one.add_argument("--scope", choices=install.SCOPES, default="project", help="default: project")
        if name == "install":
            one.add_argument("--machine", default=DEFAULT, metavar="NAME", help=f"default: {DEFAULT}")
            words = "use this Python interpreter instead of `doflow` on PATH (always with `--scope user` and `local`)"
            one.add_argument("--absolute", action="store_true", help=words)


def hooks(args: Namespace) -> int:
    root = project.find()
    if args.deed == "show":
        return _show(root, args)
    path = install.settings_path(args.agent, args.scope, root, os.environ)
    if args.deed == "remove":
        changed = install.remove(path)
        words = f"removed the hooks from {path}" if changed else f"no doflow hooks in {path}"
        return _report(args, path, changed, words)
    machine_loader.load_machine(root, args.machine)
    absolute = args.absolute or args.scope != "project"
    changed = install.install(path, args.agent, args.machine, absolute)
    _report(args, path, changed, f"{path} {'now enforces' if changed else 'already enforces'} {args.machine}")
    if args.json:
        return 0
    if not absolute and shutil.which("doflow") is None:
        output.warn(
            "WARNING: `doflow` is not on your PATH, so the agent would not find it: use --absolute, or add it to PATH"
        )
    if args.agent == "codex":
        output.say("Codex asks once whether to trust new hooks: start `codex` and confirm")
    output.say("next: doflow machine show   (the order);   doflow machine status   (the state of a session)")
    return 0


def _report(args: Namespace, path: Path, changed: bool, words: str) -> int:
    data = {"file": str(path), "changed": changed, "scope": args.scope, "agent": args.agent}
    return output.report(args.json, data, words)


def _show(root: Path, args: Namespace) -> int:
    rows, cells = [], []
    for scope in install.SCOPES:
        if args.agent == "codex" and scope == "local":
            continue
        path = install.settings_path(args.agent, scope, root, os.environ)
        found = install.list_installed(path)
        commands = {hook.event: hook.command for hook in found}
        machine = found[0].machine if found else ""
        rows.append({"scope": scope, "file": str(path), "machine": machine, "hooks": commands})
        cells.append((scope, machine or "-", str(len(commands)), str(path)))
    if args.json:
        output.say_json({"agent": args.agent, "scopes": rows})
    else:
        output.table([("SCOPE", "MACHINE", "EVENTS", "FILE"), *cells])
    return 0
