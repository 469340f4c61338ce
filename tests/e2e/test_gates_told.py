"""What `doflow status` and `why` tell of gates and questions: as the run itself tells it, with commands that work."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """\
    flow: dev
    params:
      goal: {about: What to build, required: true}
    steps:
      spec: {prompt: Specify it, makes: spec.md, gate: Is it right?}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md}
"""


@pytest.fixture
def dev(project: Project) -> Project:
    project.flow("dev", FLOW)
    project.commit("A flow")
    assert project.doit("dev", "--goal=f").returncode == 2
    return project


def told(project: Project) -> tuple[str, str]:
    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]
    return row["waits"], row["next"]


def test_an_approved_gate_asks_nobody_on_another_branch_either(dev: Project):
    asked = dev.git("switch", "-q", "main") or told(dev)
    assert asked[0].startswith("Is it right?")
    dev.git("switch", "-q", "001-f")
    assert dev.doflow("approve").returncode == 0
    here = told(dev)
    dev.git("switch", "-q", "main")

    there = told(dev)

    assert here == ("plan: it has not been done yet", "doit dev")
    assert there == ("plan: it has not been done yet", "git switch 001-f && doit dev")


@pytest.mark.parametrize(
    "words", [("reset", "spec.gate"), ("reject", "spec", "--note", "no")], ids=lambda words: words[0]
)
def test_a_yes_that_was_taken_back_is_none_on_another_branch(dev: Project, words: tuple[str, ...]):
    dev.doflow("approve")
    assert dev.doflow(*words).returncode == 0
    dev.git("switch", "-q", "main")
    assert told(dev)[0].startswith("Is it right?" if words[0] == "reset" else "spec: it was rejected with a note")
    dev.git("switch", "-q", "001-f")
    dev.agent("if nth: make('# Spec\\n\\nMore.\\n')\nelse: usual()")
    assert dev.doit("dev").returncode == 2
    dev.git("switch", "-q", "main")

    assert told(dev)[0].startswith("Is it right?")
