"""A gate holds for the bytes that were approved: whoever changes them later, it asks again before another step reads them."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: Plan., makes: plan.md, gate: Approve the plan?}
      check: {kind: review, reads: [plan.md], personas: [ann], rounds: 3}
      build: {prompt: Build., reads: [plan.md], makes: built.md}
"""
#: the fixer takes one of the bad words out of the plan in each round
AGENT = """
plan = run_dir / "plan.md"
if role == "persona":
    bad = plan.read_text().count("BAD")
    for number in range(bad): say(f"ISSUE: C | Bad word {number} | plan.md#{number}")
    say("VERDICT: " + ("NO-GO" if bad else "GO"))
elif role == "fixer":
    %s
elif step == "plan":
    make("# Plan\\n\\nBAD\\n\\nBAD\\n" if "Too long." not in prompt else "# Plan\\n\\nAnother BAD\\n")
else:
    usual()
"""
FIX = 'plan.write_text(plan.read_text().replace("BAD", "good", 1))'


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    project.agent(AGENT % FIX)
    return project


def ran(project: Project, *words: str, code: int = 2) -> str:
    done = project.doit("work", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def approved_and_revised(project: Project) -> str:
    """The plan is approved, its review has changed it; what the run says then."""
    ran(project, "--goal=x")
    assert project.doflow("approve", "plan").returncode == 0
    return ran(project)


REVIEWED = [
    "plan",
    "check persona ann",
    "check:fix1 fixer",
    "check persona ann",
    "check:fix2 fixer",
    "check persona ann",
]


@pytest.mark.smoke
def test_a_review_that_changed_an_approved_plan_ends_and_then_the_gate_asks_again(work: Project) -> None:
    said = approved_and_revised(work)

    assert work.calls() == REVIEWED, "all rounds, and nothing built"
    assert "Approve the plan?" in said and "changed by check since" in said and "doflow approve plan" in said
    assert "-BAD" in said and "+good" in said
    state = work.state()
    assert (state["status"], state["completed"]) == ("awaiting-approval", ["plan", "check"])
    assert state["pendingApproval"] == {"type": "gate", "step": "plan"}
    assert "Approve the plan?" in work.doflow("status", "1").stdout
    assert "Approve the plan?" in work.doflow("why", "plan.gate").stdout
    plan = {line["step"]: line for line in json.loads(work.doflow("plan", "--json").stdout)["steps"]}
    assert [plan[name]["state"] for name in ("plan", "plan.gate", "check", "build")] == [
        "done",
        "asks",
        "done",
        "waiting",
    ]
    ran(work)
    assert work.calls() == REVIEWED, "asking costs nothing"

    assert work.doflow("approve").returncode == 0
    ran(work, code=0)

    assert work.calls() == [*REVIEWED, "build"], "the yes makes neither the review nor the plan out of date"
    assert work.state()["status"] == "completed"
    assert ran(work, code=0) and work.calls() == [*REVIEWED, "build"]


def test_a_no_redoes_the_plan_with_the_note_and_then_the_review(work: Project) -> None:
    approved_and_revised(work)
    work.forget_calls()

    assert work.doflow("reject", "plan", "--note", "Too long.").returncode == 0
    ran(work)
    assert work.calls() == ["plan"]
    assert "Too long." in work.prompts()[-1]
    assert work.doflow("approve", "plan").returncode == 0
    said = ran(work)

    assert work.calls()[1:] == ["check persona ann", "check:fix1 fixer", "check persona ann"]
    assert "-Another BAD" in said
    assert work.doflow("approve", "plan").returncode == 0
    ran(work, code=0)
    assert work.calls()[-1] == "build"


def test_auto_approve_records_the_new_content_and_goes_on(work: Project) -> None:
    ran(work, "--goal=x", "--auto-approve", code=0)

    assert work.calls() == [*REVIEWED, "build"]
    assert ran(work, code=0) and work.calls() == [*REVIEWED, "build"], "without the option nothing is asked again"


def test_a_review_that_is_not_done_goes_on_before_the_gate_asks_again(work: Project) -> None:
    work.flow("work", FLOW.replace("rounds: 3", "rounds: 2"))
    work.commit("Two rounds")
    said = approved_and_revised(work)
    assert "NO-GO" in said and "Approve the plan?" not in said
    work.forget_calls()

    assert "NO-GO" in ran(work)
    assert "NO-GO" in work.doflow("status", "1").stdout
    plan = {line["step"]: line for line in json.loads(work.doflow("plan", "--json").stdout)["steps"]}
    assert (plan["plan.gate"]["state"], plan["check"]["state"]) == ("waiting", "next")
    assert work.doflow("approve", "plan").returncode != 0
    assert work.doflow("adopt", "check").returncode == 0
    assert "Approve the plan?" in ran(work)
    assert work.calls() == []


def test_a_run_whose_last_step_changed_approved_content_is_not_complete(work: Project) -> None:
    work.flow("work", FLOW[: FLOW.index("      build")])
    work.commit("No build")

    said = approved_and_revised(work)

    assert "Approve the plan?" in said
    assert work.state()["status"] == "awaiting-approval"
    assert work.doflow("approve").returncode == 0
    ran(work, code=0)
    assert (work.calls(), work.state()["status"]) == (REVIEWED, "completed")


def test_a_command_that_changes_approved_content_is_noticed_before_the_next_step(work: Project) -> None:
    work.flow(
        "work",
        """
        flow: work
        steps:
          plan: {prompt: Plan., makes: plan.md, gate: Approve the plan?}
          format: {kind: shell, run: [sh, -c, "echo more >> {run_dir}/plan.md"]}
          build: {prompt: Build., reads: [plan.md], makes: built.md}
        """,
    )
    work.commit("A formatter")

    said = approved_and_revised(work)

    assert work.calls() == ["plan"]
    assert "Approve the plan?" in said and "+more" in said


def test_ticked_boxes_of_an_approved_task_list_are_progress(project: Project) -> None:
    project.flow(
        "work",
        """
        flow: work
        steps:
          tasks: {prompt: List., makes: tasks.md, gate: Approve the tasks?}
          code: {kind: implement, phases: tasks.md, prompt: Build.}
          test: {kind: shell, run: ["true"]}
        """,
    )
    project.agent("""
        usual()
        path = run_dir / "tasks.md"
        if phase: path.write_text(path.read_text().replace("[ ]", "[x]", 1))
    """)
    ran(project, "--goal=x")
    assert project.doflow("approve").returncode == 0

    ran(project, code=0)

    assert project.calls() == ["tasks", "code:1", "code:2"]
    assert ran(project, code=0)
