"""Every command that is told goes on as the run was begun: with its agent, its budget, its record."""

from __future__ import annotations

import json
import signal

import pytest
from tests.support.project import Project, eventually

FLOW = """\
    flow: hello
    params:
      goal: {about: Whom to greet, required: true}
    steps:
      write: {prompt: "Greet {goal}", makes: greeting.md, gate: Is it right?}
      more: {prompt: More of it, reads: [greeting.md], makes: more.md}
"""
GO = "doit hello --agent=rehearsal"


@pytest.fixture
def hello(project: Project) -> Project:
    project.flow("hello", FLOW)
    project.commit("A flow")
    return project


@pytest.fixture
def rehearsed(hello: Project) -> Project:
    assert hello.doit("hello", "--goal=x", "--agent=rehearsal").returncode == 2
    return hello


@pytest.mark.smoke("approve")
@pytest.mark.parametrize(
    "words",
    [("status",), ("status", "1"), ("approve",), ("reject", "write", "--note", "n"), ("reset", "write", "--yes"),
     ("adopt", "more", "--anyway"), ("why", "more")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_what_a_command_names_after_a_rehearsal_calls_no_other_agent(rehearsed: Project, words: tuple[str, ...]):
    if words[0] in ("adopt", "why"):
        rehearsed.doflow("approve")
        rehearsed.write(f"specs/{rehearsed.runs()[0]}/more.md", "Mine.\n") if words[0] == "adopt" else None

    told = rehearsed.doflow(*words)

    assert told.returncode == 0, told.stderr
    assert told.stdout.count("doit hello") == told.stdout.count(GO) > 0, told.stdout
    assert rehearsed.calls() == []


def test_the_ledger_alone_knows_it_and_the_branch_may_be_another(rehearsed: Project):
    (rehearsed.root / ".doflow" / "runs" / "001-x" / "pipeline-state.json").unlink()
    rehearsed.git("switch", "-q", "main")

    told = rehearsed.doflow("status").stdout

    assert f"then: git switch 001-x && {GO}" in told


def test_the_last_command_counts(hello: Project):
    assert hello.doit("hello", "--goal=x", "--agent=rehearsal", "--budget=none", "--record").returncode == 2
    assert "continue with:\n  doit hello --agent=rehearsal --budget=none --record\n" in hello.doflow("approve").stdout
    hello.doflow("reset", "write.gate")

    assert hello.doit("hello", "--budget=90000tokens").returncode == 2
    assert "continue with:\n  doit hello --budget=90000tokens\n" in hello.doflow("approve").stdout
    hello.doflow("reset", "write.gate")

    assert hello.doit("hello").returncode == 2
    assert "continue with:\n  doit hello\n" in hello.doflow("approve").stdout


def test_an_interrupted_run_and_a_refusal_name_it_too(hello: Project):
    text = hello.read("doflow.yaml")
    hello.write("doflow.yaml", text + text.splitlines()[1].replace("default:", "other:") + "\n")
    hello.commit("Another agent")
    hello.agent("time.sleep(60)")
    begun = hello.start("doit", "hello", "--goal=x", "--agent=other")
    assert eventually(lambda: hello.calls() == ["write"])
    begun.send_signal(signal.SIGINT)

    _, said = begun.communicate(timeout=20)

    assert (begun.returncode, "continue with:\n  doit hello --agent=other" in said) == (130, True), said
    assert "next: doit hello --agent=other" in hello.doflow("status").stdout
    hello.git("switch", "-q", "main")
    told = json.loads(hello.doflow("status", "--json").stdout)["runs"][0]["next"]
    assert told == "git switch 001-x && doit hello --agent=other"
