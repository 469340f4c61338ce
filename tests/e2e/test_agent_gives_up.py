"""An agent that could not do its work and exits 0 is not done: a reported error, a phase without any change."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

LIST = (
    "# Tasks\n\n## Phase 1: First\n- [ ] [T001] Write a.py\n- [x] [T002] Read\n\n## Phase 2: Second\n- [ ] [T003] b\n"
)
FLOW = """
    flow: work
    steps:
      tasks: {prompt: Write., makes: tasks.md, repair: 1}
      build: {kind: implement, phases: tasks.md, prompt: Build.}
"""
REVIEW = """
    flow: work
    steps:
      plan: {prompt: Plan., makes: plan.md}
      check: {kind: review, reads: [plan.md], personas: [ann], rounds: 2}
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def acts(project: Project, phase: str = 'put(f"src/{phase}.py", "x = 1")', tasks: str = "") -> None:
    project.agent(f"""
        path = run_dir / "tasks.md"
        if step == "tasks":
            path.write_text({LIST!r})
            {tasks}
        else:
            {phase}
    """)


@pytest.mark.smoke
def test_a_reported_error_fails_the_step_although_its_artifact_is_there(work: Project) -> None:
    acts(work, tasks='say("I tried.\\n\\n**[ERROR: the spec contradicts itself]**\\n\\nSorry.")')

    done = work.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "the agent of tasks reported an error: the spec contradicts itself" in done.stdout
    assert work.calls() == ["tasks"], "it is neither retried nor handed back"
    assert not (work.run_dir() / "tasks.md").exists()
    assert work.state()["status"] == "failed"
    acts(work)
    assert work.doit("work").returncode == 0


def test_a_quoted_error_is_not_an_error(work: Project) -> None:
    acts(work, tasks='say("It logs:\\n```\\n[ERROR: disk full]\\n```")')

    assert work.doit("work", "--goal=x").returncode == 0


def test_a_transient_error_is_retried(work: Project) -> None:
    work.flow("work", FLOW.replace("steps:", "defaults: {retry: {attempts: 1, backoff: 0s}}\n    steps:"))
    work.commit("Retry")
    acts(work, tasks='say("[ERROR: 503 Service Unavailable]" if nth == 0 else "done")')

    assert work.doit("work", "--goal=x").returncode == 0
    assert work.calls()[:2] == ["tasks", "tasks"]


@pytest.mark.parametrize("who", ["persona", "fixer"])
def test_reviewers_and_fixers_report_errors_too(project: Project, who: str) -> None:
    project.flow("work", REVIEW)
    project.agent(f"""
        if role == {who!r}: say("[ERROR: plan.md is not readable]\\nVERDICT: GO")
        elif role == "persona": say("ISSUE: C | Broken | plan.md\\nVERDICT: NO-GO")
        else: usual()
    """)

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "reported an error: plan.md is not readable" in done.stdout
    assert "check" not in project.state()["completed"]


@pytest.mark.smoke
def test_a_phase_that_changed_nothing_and_left_tasks_open_pauses(work: Project) -> None:
    acts(work, 'say("I could not do it.")')

    done = work.doit("work", "--goal=x")

    assert done.returncode == 2, done.stdout + done.stderr
    assert "build:1 changed no file and left 1 task open:" in done.stdout
    assert "T001 Write a.py" in done.stdout and "T002" not in done.stdout
    assert "doflow adopt build:1 --anyway" in done.stdout
    assert work.calls() == ["tasks", "build:1"]
    state = work.state()
    assert (state["status"], state["completed"]) == ("paused", ["tasks"])
    assert "changed no file" in work.doflow("status", "1").stdout
    assert work.doit("work").returncode == 2
    assert work.calls() == ["tasks", "build:1", "build:1"]

    assert work.doflow("adopt", "build:1", "--anyway").returncode == 0
    acts(work)
    assert work.doit("work").returncode == 0
    assert work.calls()[3:] == ["build:2"]


def test_a_phase_whose_boxes_were_ticked_is_done(work: Project) -> None:
    acts(work, 'path.write_text(path.read_text().replace("[ ]", "[x]", 1))')

    assert work.doit("work", "--goal=x").returncode == 0
    assert work.calls() == ["tasks", "build:1", "build:2"]


def test_a_phase_done_again_with_the_same_tasks_may_change_nothing(work: Project) -> None:
    acts(work)
    assert work.doit("work", "--goal=x").returncode == 0
    acts(work, 'say("All of it is there.")')

    assert work.doit("work", "--force=build").returncode == 0


def test_the_event_log_has_the_open_tasks_and_the_commands(work: Project) -> None:
    acts(work, "pass")

    done = work.doflow("run", "work", "--goal=x", "--json")

    paused = [entry for line in done.stdout.splitlines() if (entry := json.loads(line))["event"] == "paused"]
    assert (done.returncode, len(paused)) == (2, 1)
    assert (paused[0]["step"], paused[0]["phase"]) == ("build", "1")
    assert ["doflow", "adopt", "build:1", "--anyway"] in [
        step.get("command") or step.get("argv") for step in paused[0]["next"]
    ]
