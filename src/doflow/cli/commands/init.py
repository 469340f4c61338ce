"""`doflow init`: make a git repository a doflow project, and list what it has of other tools. Nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from doflow.agents import registry
from doflow.cli import found_formats
from doflow.cli.output import say
from doflow.config import project
from doflow.flow.parsing import loader, syntax
from doflow.flow.parsing.syntax import COMMANDS
from doflow.git import head_reader, refs
from doflow.importers import registry as formats
from doflow.util import atomic_files
from doflow.util.errors import UsageError

ABOUT = "Make this git repository a doflow project: writes dodo.py, doflow.yaml and, with --flow, a first flow."
EXAMPLES = """\
  doflow init                       choose the first agent found on your PATH
  doflow init --agent rehearsal     try it offline, without an API key
  doflow init --flow release        also write flows/release.yaml"""

#: what doit leaves when it reads dodo.py
IGNORED = "__pycache__/\n"
DODO = "import doflow\nglobals().update(doflow.dodo())\n"
_PROGRAMS = ("claude", "codex", "opencode", "gemini")

SETTINGS = """\
# Settings of doflow. Everything has a default; `doflow config` shows each value and where it comes from.
agents:
  default: {profile}
  # more profiles that steps can use (`agent: mine`):
  # mine: {{use: command, argv: [python3, tools/agent.py]}}   # prompt on stdin, final text on stdout

# route_agents: {{plan: mine}}      # use that profile for this step (or steps whose id starts with it)
# gates: {{after-plan: true}}       # pause for your approval after a step: doflow approve plan
# timeouts: {{idle: 10m, max: 2h}}
# retry: {{max_retries: 2, backoff_seconds: 30}}
# protect: [LICENSE, "*.lock"]     # agents may not change these files
# git: {{branch: new}}              # or current: stay on the checked-out branch
{tests}
"""
_TESTS = 'test_command: {command}     # must pass after each phase of `doit implement`; change it, or "" for no tests'
_NO_TESTS = "# test_command: make test          # must pass after each phase of `doit implement`"
_NPM_DEFAULT = "no test specified"

FLOW = """\
# A flow is a list of steps. A step runs once, and again only when something it depends on changes.
flow: {name}
about: One sentence about this flow.
params:
  goal: {{about: What you want, required: true}}
steps:
  draft:
    about: A first version.
    prompt: |                      # or a file in flows/prompts/: `prompt: draft.md`
      Write what is asked for in input.md, as a text with the heading "Draft".
    reads: [input.md]              # given to the agent; when it changes, the step runs again
    makes: draft.md                # in the run's folder, specs/001-…/
    check: {{not_empty: true, headings: [Draft]}}
    gate: Is the draft good?       # pauses until: doflow approve draft
  final:
    about: The version to keep.
    prompt: Improve draft.md. Keep its meaning, fix its language.
    reads: [draft.md]
    makes: final.md
    check: {{not_empty: true}}
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--agent", default="", metavar="NAME", help=f"agent for the steps: {', '.join(registry.KNOWN)}")
    parser.add_argument("--flow", default="", metavar="NAME", help="also write flows/NAME.yaml as a starting point")


def init(args: Namespace) -> int:
    root = project.find()
    head = head_reader.find_head(str(root))
    _check_arguments(args)
    made = [*_dodo(root), *_settings(root, args.agent), *_flow(root, args.flow), *_ignore(root)]
    flow = args.flow or "feature"
    found = formats.find_formats(formats.scan(root))
    found_formats.say_formats(found)
    say()
    if not refs.identity(head):
        say('Git identity is not configured: git config user.name "…" && git config user.email you@example.org')
    if made:
        say(f'next: git add {" ".join(made)} && git commit -m "Add doflow"')
    start = "" if args.flow else found_formats.first_command(found)
    start = start or f'doit {flow} --goal="…"'
    say(f"{'then' if made else 'next'}: {start}")
    say(f"      (doit list shows the flows, doflow show {flow} draws one)")
    return 0


def _check_arguments(args: Namespace) -> None:
    """Check the arguments before anything is written."""
    if args.agent and args.agent not in registry.KNOWN:
        raise UsageError(f"unknown agent {args.agent!r}", f"one of: {', '.join(registry.KNOWN)}")
    if not args.flow:
        return

    try:
        syntax.name(args.flow)
    except syntax.InvalidSyntax as bad:
        raise UsageError(f"--flow: {bad.message}", bad.hint) from bad
    if args.flow in COMMANDS:
        raise UsageError(f"--flow: {args.flow!r} is a doit command", "choose another name")


def _dodo(root: Path) -> list[str]:
    path = root / "dodo.py"
    if not os.path.lexists(path):
        return _written(root, "dodo.py", DODO)
    if "doflow.dodo(" in path.read_text("utf-8", "replace"):
        say("dodo.py already exists")
    else:
        lines = "".join(f"    {line}\n" for line in DODO.splitlines())
        say(f"dodo.py exists and is not changed. Add these two lines to it:\n{lines}".rstrip())
    return []


def _ignore(root: Path) -> list[str]:
    """Ignore the bytecode that Python writes next to dodo.py; the rest of .gitignore is kept."""
    path = root / ".gitignore"
    text = path.read_text("utf-8", "surrogateescape") if path.is_file() else ""
    if os.path.lexists(path) and not path.is_file():
        return []
    if any(line.strip().strip("/") in ("__pycache__", "*.pyc", "*.py[cod]") for line in text.splitlines()):
        return []
    gap = "" if not text or text.endswith("\n") else "\n"
    atomic_files.write_file(path, f"{text}{gap}{IGNORED}".encode("utf-8", "surrogateescape"))
    say("  .gitignore: __pycache__/")
    return [".gitignore"]


def _settings(root: Path, agent: str) -> list[str]:
    if os.path.lexists(root / "doflow.yaml"):
        more = f"; to use {agent}, set there: agents: {{default: {{use: {agent}}}}}" if agent else ""
        say(f"doflow.yaml already exists{more}")
        return []
    use, why = agent, "as requested"
    if not agent:
        use = next((name for name in _PROGRAMS if shutil.which(name)), "rehearsal")
        missing = f"none of {', '.join(_PROGRAMS)} is on your PATH; the rehearsal agent makes placeholders, offline"
        why = missing if use == "rehearsal" else f"found at {shutil.which(use)}"
    profile = "{use: command, argv: [python3, tools/agent.py]}" if use == "command" else f"{{use: {use}}}"
    command = find_test_command(root)
    tests = _TESTS.format(command=command) if command else _NO_TESTS
    made = _written(root, "doflow.yaml", SETTINGS.format(profile=profile, tests=tests))
    say(f"  agent: {use} ({why})")
    if command:
        say(f"  test_command: {command}")
    return made


def find_test_command(root: Path) -> str:
    """The command that runs the project's tests, if it is obvious: `make test`, or that of the only language found."""
    if re.search(r"^test:", _text(root / "Makefile"), re.M):
        return "make test"
    pytest = "[tool.pytest" in _text(root / "pyproject.toml") or (root / "pytest.ini").is_file()
    found = {
        "python3 -m pytest -q": pytest or any((root / "tests").glob("test_*.py")),
        "npm test": _has_npm_test(_text(root / "package.json")),
        "cargo test": (root / "Cargo.toml").is_file(),
        "go test ./...": (root / "go.mod").is_file(),
    }
    commands = [command for command, is_used in found.items() if is_used]
    return commands[0] if len(commands) == 1 else ""


def _has_npm_test(package: str) -> bool:
    try:
        script = json.loads(package)["scripts"]["test"]
    except (ValueError, KeyError, TypeError):
        return False
    return _NPM_DEFAULT not in str(script)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _flow(root: Path, name: str) -> list[str]:
    if not name:
        return []
    path = f"flows/{name}.yaml"
    if os.path.lexists(root / path):
        say(f"{path} already exists")
        return []
    (root / "flows").mkdir(exist_ok=True)
    made = _written(root, path, FLOW.format(name=name))
    if (loader.packaged_flows() / f"{name}.yaml").exists():
        say(f"  it replaces the packaged flow {name}")
    return made


def _written(root: Path, path: str, text: str) -> list[str]:
    atomic_files.write_file(root / path, text.encode())
    say(f"wrote {path}")
    return [path]
