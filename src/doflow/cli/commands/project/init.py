"""`doflow init`: a git repository becomes a doflow project. Nothing that is there is ever overwritten."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from doflow.agents import registry
from doflow.cli.output import say
from doflow.config import project
from doflow.flow.parsing import loader as load, syntax as notation
from doflow.git import branches as branch, repository as look
from doflow.util import atomic_files as files
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "Make this git repository a doflow project: dodo.py, doflow.yaml, and with --flow a first flow of your own."
EXAMPLES = """\
  doflow init                       the agent is chosen from what is on your PATH
  doflow init --agent rehearsal     offline, without a key: to try things out
  doflow init --flow release        with flows/release.yaml to start from"""

#: what doit leaves when it reads dodo.py
IGNORED = "__pycache__/\n"
DODO = "import doflow\nglobals().update(doflow.dodo())\n"
_PROGRAMS = ("claude", "codex", "opencode", "gemini")

SETTINGS = """\
# Settings of doflow. Everything has a default; `doflow config` shows each value and where it came from.
agents:
  default: {profile}
  # more profiles, which a step of a flow can name (`agent: mine`):
  # mine: {{use: command, argv: [python3, tools/agent.py]}}   # prompt on stdin, final text on stdout

# route_agents: {{plan: mine}}      # this step (or steps beginning so) is done by that profile
# gates: {{after-plan: true}}       # pause for your yes after a step: doflow approve plan
# timeouts: {{idle: 10m, max: 2h}}
# retry: {{max_retries: 2, backoff_seconds: 30}}
# protect: [LICENSE, "*.lock"]     # no agent may touch these
# git: {{branch: new}}              # or current: work on the branch that is checked out
"""

FLOW = """\
# A flow is a list of steps; each is done once, and again only when something it depends on changes.
flow: {name}
about: What this flow is for, in one sentence.
params:
  goal: {{about: What you want, required: true}}
steps:
  draft:
    about: A first version.
    prompt: |                      # or a file of flows/prompts/: `prompt: draft.md`
      Write what is asked for in input.md, as a text with the heading "Draft".
    reads: [input.md]              # given to the agent; when it changes, the step is done again
    makes: draft.md                # in the run's folder, specs/001-…/
    check: {{not_empty: true, headings: [Draft]}}
    gate: Is the draft good?       # pauses until: doflow approve draft
  final:
    about: The version to keep.
    prompt: Improve draft.md. Keep its meaning, mend its language.
    reads: [draft.md]
    makes: final.md
    check: {{not_empty: true}}
"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--agent", default="", metavar="NAME", help=f"who does the steps: {', '.join(registry.KNOWN)}")
    parser.add_argument("--flow", default="", metavar="NAME", help="also write flows/NAME.yaml to start from")


def init(args: Namespace) -> int:
    root = project.find()
    head = look.find(str(root))
    _refuse_bad_words(args)
    made = [*_dodo(root), *_settings(root, args.agent), *_flow(root, args.flow), *_ignore(root)]
    flow = args.flow or _first_flow()
    say()
    if not branch.identity(head):
        say('git does not know who you are yet: git config user.name "…" && git config user.email you@example.org')
    if made:
        say(f'next: git add {" ".join(made)} && git commit -m "Add doflow"')
    say(f'{"then" if made else "next"}: doit {flow} --goal="…"')
    say(f"      (doit list shows the flows, doflow show {flow} draws one)")
    return 0


def _refuse_bad_words(args: Namespace) -> None:
    """Before anything is written."""
    if args.agent and args.agent not in registry.KNOWN:
        raise UsageError(f"doflow knows no agent {args.agent!r}", f"one of: {', '.join(registry.KNOWN)}")
    if not args.flow:
        return
    from doflow.flow.parsing.reserved_names import COMMANDS

    try:
        notation.name(args.flow)
    except notation.Bad as bad:
        raise UsageError(f"--flow: {bad.message}", bad.hint) from bad
    if args.flow in COMMANDS:
        raise UsageError(f"--flow: {args.flow!r} is a command of doit", "choose another name")


def _dodo(root: Path) -> list[str]:
    path = root / "dodo.py"
    if not os.path.lexists(path):
        return _written(root, "dodo.py", DODO)
    if "doflow.dodo(" in path.read_text("utf-8", "replace"):
        say("dodo.py is there already")
    else:
        lines = "".join(f"    {line}\n" for line in DODO.splitlines())
        say(f"dodo.py is yours and stays as it is. Add these two lines to it:\n{lines}".rstrip())
    return []


def _ignore(root: Path) -> list[str]:
    """What Python leaves beside dodo.py is nobody's work: kept out of git, the rest of the file stays as it is."""
    path = root / ".gitignore"
    said = path.read_text("utf-8", "surrogateescape") if path.is_file() else ""
    if os.path.lexists(path) and not path.is_file():
        return []
    if any(line.strip().strip("/") in ("__pycache__", "*.pyc", "*.py[cod]") for line in said.splitlines()):
        return []
    gap = "" if not said or said.endswith("\n") else "\n"
    files.write(path, f"{said}{gap}{IGNORED}".encode("utf-8", "surrogateescape"))
    say("  .gitignore: __pycache__/")
    return [".gitignore"]


def _settings(root: Path, agent: str) -> list[str]:
    if os.path.lexists(root / "doflow.yaml"):
        more = f"; for {agent} write there: agents: {{default: {{use: {agent}}}}}" if agent else ""
        say(f"doflow.yaml is there already{more}")
        return []
    use, why = (agent, "as you said") if agent else _chosen()
    profile = "{use: command, argv: [python3, tools/agent.py]}" if use == "command" else f"{{use: {use}}}"
    made = _written(root, "doflow.yaml", SETTINGS.format(profile=profile))
    say(f"  agent: {use} ({why})")
    return made


def _chosen() -> tuple[str, str]:
    """The first agent program on the PATH that this doflow can call; else the rehearsal, which needs none."""
    there = [name for name in _PROGRAMS if shutil.which(name)]
    if there:
        return there[0], f"found at {shutil.which(there[0])}"
    return "rehearsal", f"none of {', '.join(_PROGRAMS)} is on your PATH; a rehearsal makes placeholders, offline"


def _flow(root: Path, name: str) -> list[str]:
    if not name:
        return []
    path = f"flows/{name}.yaml"
    if os.path.lexists(root / path):
        say(f"{path} is there already")
        return []
    (root / "flows").mkdir(exist_ok=True)
    made = _written(root, path, FLOW.format(name=name))
    if (load.packaged() / f"{name}.yaml").exists():
        say(f"  it stands in for the packaged flow {name} now")
    return made


def _written(root: Path, path: str, text: str) -> list[str]:
    files.write(root / path, text.encode())
    say(f"wrote {path}")
    return [path]


def _first_flow() -> str:
    return "feature" if (load.packaged() / "feature.yaml").exists() else "tiny"
