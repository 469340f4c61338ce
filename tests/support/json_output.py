"""What doflow's commands say as JSON, for tests that compare it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.project import Project

ASKING = """\
flow: asking
params: {goal: {about: What, required: true}}
steps:
  spec: {prompt: Write it., reads: [input.md], makes: spec.md, clarify: true}
  plan: {prompt: Plan it., reads: [spec.md], makes: plan.md, gate: Good plan?}
  code: {kind: implement, phases: plan.md, prompt: Code it.}
"""


ROUTED = """\
flow: routed
params: {goal: {about: What, required: true}}
steps:
  triage:
    prompt: How big?
    reads: [input.md]
    makes: triage.md
    routes: [{when: SMALL, then: [build]}, {when: LARGE, then: [plan, build]}, {when: NONE, pause: Nothing to do}]
  plan: {prompt: Plan it., reads: [input.md], makes: plan.md}
  build: {kind: shell, run: ["true"]}
"""


def looked(project: Project, *words: str) -> Any:
    shown = project.doflow(*words, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    return json.loads(shown.stdout)


def states(project: Project, run: str = "1") -> dict[str, str]:
    return {row["step"]: row["state"] for row in looked(project, "status", run)["steps"]}


def everything(root: Path) -> dict[str, tuple[int, int]]:
    """Every path of the project, .git and .doflow included, with its size and time."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in (*names, "."):
            stat = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (stat.st_size, stat.st_mtime_ns)
    return found
