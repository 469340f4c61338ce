"""`--next` does one step with all that belongs to it: its phases, its questions, its gate, its route."""

from __future__ import annotations

import json

import pytest
from tests.support import script
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: Write., makes: one.md%s}
      two: {prompt: Write., makes: two.md}
"""
#: what a step has besides its work -> (the agent, the status, a word of the reason)
PAUSES = {
    ", gate: Is it right?": ("usual()", "awaiting-approval", "Is it right?"),
    ", clarify: true": ('make("# One\\n\\n[NEEDS CLARIFICATION: Which?]\\n")', "awaiting-approval", "Which?"),
    ', routes: [{when: "VERDICT: CONTINUE", pause: Go on., variant: same}]': (
        'usual(); say("VERDICT: CONTINUE")', "paused", "Go on.",
    ),
}  # fmt: skip


@pytest.mark.smoke("gate")
@pytest.mark.parametrize("words", PAUSES, ids=["gate", "question", "route"])
def test_the_pause_of_a_step_is_the_end_of_that_next(project: Project, words: str) -> None:
    agent, status, reason = PAUSES[words]
    project.flow("work", FLOW % words)
    project.agent(agent)

    done = project.doflow("run", "work", "--goal=x", "--next", "--json")

    assert (done.returncode, project.calls()) == (2, ["one"]), done.stdout + done.stderr
    state = project.state()
    assert (state["status"], state["completed"], reason in state["pauseReason"]) == (status, ["one"], True)
    last = [json.loads(line) for line in done.stdout.splitlines()][-1]
    assert last["event"] in ("gate", "clarification", "paused") and reason in last["message"]
    assert state["variant"] == ("same" if "variant" in words else "")
    assert (project.doit("work", "--next").returncode, project.calls()) == (2, ["one"])


@pytest.mark.parametrize("marker", ["SCALE: SMALL", "SCALE: LARGE", "RECLASSIFY: FEATURE"])
def test_the_variant_is_known_after_the_next_that_decides_it(project: Project, marker: str) -> None:
    project.agent(script.good(bugfix=marker))
    code, variant = {"SCALE: SMALL": (0, "small"), "SCALE: LARGE": (0, "large")}.get(marker, (2, ""))

    done = project.doit("bugfix", "--goal=x", "--next")

    assert (done.returncode, project.calls()) == (code, ["bugfix"]), done.stdout + done.stderr
    assert project.state()["variant"].endswith(variant)
    first = project.state()["variant"]
    assert project.doit("bugfix", "--next").returncode == code
    assert project.state()["variant"] == first, "also in the next process"


def test_all_phases_are_one_step_and_the_end_is_told_by_the_command_after_it(project: Project) -> None:
    for calls in (["specify"], ["plan"], ["tasks"], ["implement:1", "implement:2"]):
        project.forget_calls()
        done = project.doit("tiny", "--goal=x", "--next")
        assert (done.returncode, project.calls()) == (0, calls), done.stdout + done.stderr
        assert project.state()["status"] == "active"

    assert project.doit("tiny", "--next").returncode == 0
    assert (project.calls(), project.state()["status"]) == (calls, "completed")


def test_a_review_that_changed_approved_content_asks_on_that_next(project: Project) -> None:
    review = "\n      check: {kind: review, reads: [one.md], personas: [ann], rounds: 2}\n      two:"
    project.flow("work", (FLOW % ", gate: Is it right?").replace("\n      two:", review))
    project.agent("""
        if role == "fixer": make("# Good\\n", "one.md")
        elif role == "persona" and round == 1: say("ISSUE: C | Bad | one.md\\nVERDICT: NO-GO")
        elif role == "persona": say("VERDICT: GO")
        else: usual()
    """)
    assert project.doit("work", "--goal=x", "--next").returncode == 2
    assert project.doflow("approve").returncode == 0

    done = project.doit("work", "--next")

    assert done.returncode == 2, done.stdout + done.stderr
    assert "Is it right?" in done.stdout and "two" not in project.calls()
    assert project.doflow("approve").returncode == 0
    project.forget_calls()
    assert (project.doit("work", "--next").returncode, project.calls()) == (0, ["two"])
