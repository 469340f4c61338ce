"""A flow with questions and a gate, and what its run says about them."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.support.project import PROGRAMS, Project

FLOW = """\
    flow: ask
    params:
      goal: {about: What to build, required: true}
    steps:
      specify: {prompt: "Specify {goal}", reads: [input.md], makes: spec.md, clarify: true, check: {headings: [Spec]}}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md, gate: Is the plan good?}
      count: {kind: shell, run: [sh, -c, "echo counted >> ../outside/count.log"]}
      tasks: {prompt: List the tasks, reads: [plan.md], makes: tasks.md}
"""


ASKS = """\
    if step == "specify":
        days = "[NEEDS CLARIFICATION: how many days [7 or 14]?]"
        make(f"# Spec\\n\\nBy [NEEDS CLARIFICATION: email or sms?], for {days}.\\n")
    else:
        echo()
"""


CALM = "if step == 'specify': make('# Spec\\n')\nelse: echo()"


def lock(project: Project) -> str:
    return (project.run_dir() / "doflow.lock").read_text()


def status(project: Project) -> tuple[str, object]:
    state = project.state()
    return state["status"], state["pendingApproval"]


def clean_tree(project: Project) -> bool:
    """Nothing is left uncommitted, and all records agree."""
    told = project.doflow("verify")
    assert told.returncode == 0, told.stdout
    return project.git("status", "--porcelain") == ""


def at_terminal(project: Project, typed: str, *words: str) -> tuple[int, str]:
    """The program on a terminal of its own, with what a person types."""
    ours, theirs = pty.openpty()
    program = (str(PROGRAMS / "doflow"), *words)
    done = subprocess.Popen(program, cwd=project.root, env=project.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:
        pass  # the terminal closes when the program ends
    os.close(ours)
    return done.wait(60), said.decode()
