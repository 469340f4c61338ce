"""`doflow status` looks again at the finished run of the branch that is checked out, and at no other."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """\
    flow: build
    params:
      goal: {about: What to build, required: true}
    steps:
      tasks: {prompt: List the tasks, makes: tasks.md, check: {tasks: true}}
      implement: {kind: implement, phases: tasks.md, prompt: Build it}
"""


@pytest.fixture
def built(project: Project) -> Project:
    project.flow("build", FLOW)
    project.commit("A flow")
    assert project.doit("build", "--goal=f").returncode == 0
    return project


def row(project: Project) -> dict:
    return json.loads(project.doflow("status", "--json").stdout)["runs"][0]


def test_a_finished_run_that_nobody_touched_is_completed(built: Project):
    found = row(built)

    assert (found["status"], found["changed"], found["waits"], found["next"]) == ("completed", False, "", "")
    assert "changed since" not in built.doflow("status").stdout


def test_a_task_list_that_was_broken_by_hand_is_told(built: Project):
    built.write(
        "specs/001-f/tasks.md", "# Tasks\n\n## Phase 1: A\n\n- [ ] [T001] a\n\n## Phase 1: B\n\n- [ ] [T002] b\n"
    )

    told, found = built.doflow("status").stdout, row(built)

    assert "completed (changed since)" in told and f"next: {found['next']}" in told
    assert (found["status"], found["changed"]) == ("completed", True)
    assert "specs/001-f/tasks.md" in found["waits"] and "doit build" in found["next"]


@pytest.mark.smoke
def test_a_phase_that_was_reset_away_is_told(built: Project):
    built.git("reset", "-q", "--hard", "HEAD~1")

    found = row(built)

    assert (found["changed"], found["next"]) == (True, "doit build"), found
    assert found["waits"].startswith("implement:2: ")


def test_a_revert_that_stopped_in_a_conflict_is_told(built: Project):
    first = built.git("log", "--format=%H", "--grep=Phase 1").split()[0]
    built.git("revert", "--no-edit", first, check=False)
    assert "<<<<<<<" in built.read("specs/001-f/doflow.lock")

    told = built.doflow("status").stdout

    assert "completed (changed since)" in told and "conflict" in told and "next: " in told, told


def test_a_finished_run_of_another_branch_is_believed(built: Project):
    built.git("switch", "-q", "main")
    built.write("flows/build.yaml", built.read("flows/build.yaml").replace("Build it", "Build it well"))

    found = row(built)

    assert (found["status"], found["changed"], found["waits"], found["next"]) == ("completed", False, "", "")
