"""A program that speaks like Claude Code, for what doflow does with sessions: no model, no network, ended in no time.

    project.settings(agent…)        see `install`

Every call appends one JSON line to `cli.jsonl` beside it: its arguments and its prompt. What it does is a script, as with
the project's own agent: Python with `prompt`, `resume` (the session's id or ''), `nth`, `makes`, `make(text)`, `say(text)`.
A session has used 0.25 dollars per call; one that is in `gone` cannot be resumed.
"""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

from tests.support.project import Project

PROGRAM = """\
#!{python} -IS
import json, os, pathlib, sys

here = pathlib.Path(__file__).parent
argv, prompt = sys.argv[1:], sys.stdin.read()
resume = argv[argv.index("--resume") + 1] if "--resume" in argv else ""
makes = [pathlib.Path(line) for line in os.environ["DOFLOW_MAKES"].splitlines()]
log = here / "cli.jsonl"
calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
nth = len(calls)
with open(log, "a") as file:
    file.write(json.dumps({{"argv": argv, "prompt": prompt, "resume": resume, "role": os.environ["DOFLOW_ROLE"]}}) + "\\n")
session = resume or f"session-{{nth}}"
said = ["done"]


def make(text):
    for path in makes:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def say(text):
    said[0] = text


def tell(**record):
    print(json.dumps(record), flush=True)


if resume and (here / "gone").exists():
    tell(type="result", subtype="error_during_execution", is_error=True, num_turns=0, session_id=resume, total_cost_usd=0,
         usage={{}}, errors=[f"No conversation found with session ID: {{resume}}"])
    sys.exit(1)
tell(type="system", subtype="init", session_id=session, model="claude-x")
script = here / "cli-script.py"
exec(compile(script.read_text(), str(script), "exec"))
before = sum(1 for call in calls if call["resume"] == session) + bool(resume)
tell(type="result", subtype="success", is_error=False, num_turns=1, result=said[0], session_id=session,
     total_cost_usd=0.25 * (1 + before), usage={{"input_tokens": 100, "output_tokens": 10}}, permission_denials=[])
"""


class Cli:
    """The program, installed as the project's default agent."""

    def __init__(self, project: Project, script: str) -> None:
        self.folder = project.outside
        program = self.folder / "claude"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        (self.folder / "cli-script.py").write_text(textwrap.dedent(script))
        project.write("doflow.yaml", f"agents:\n  default: {{use: claude, executable: {program}}}\n")
        project.commit("Another agent")

    def calls(self) -> list[dict[str, Any]]:
        log = self.folder / "cli.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def forget(self) -> None:
        """No session can be resumed any more."""
        (self.folder / "gone").touch()
