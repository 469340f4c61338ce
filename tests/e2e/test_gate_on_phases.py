"""A gate on a step that makes no artifact (`kind: implement`): the yes is to what its phases did, and to nothing else."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      build: {kind: implement, phases: /tasks.md, prompt: Build it, gate: Ship it?}
      tell: {prompt: Tell, makes: end.md}
"""
TASKS = "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] Dig\n\n## Phase 2: Walls\n\n- [ ] [T002] {walls}\n"


@pytest.fixture
def built(project: Project) -> Project:
    """Both phases are done and approved, the step behind the gate has failed."""
    project.flow("work", FLOW)
    project.write("tasks.md", TASKS.format(walls="Build two"))
    project.commit("Ground")
    project.agent("if step == 'tell': stop(1)\nput(f'src/phase_{phase}.py', f'{phase} {nth}')")
    assert project.doit("work", "--goal=x").returncode == 2
    assert project.doflow("approve", "build").returncode == 0
    assert project.doit("work").returncode == 1
    assert project.calls() == ["build:1", "build:2", "tell"]
    project.agent("usual() if step == 'tell' else put(f'src/phase_{phase}.py', f'{phase} {nth}')")
    return project


@pytest.mark.smoke
def test_a_phase_that_is_done_again_for_a_new_task_is_asked_about_again(built):
    built.write("tasks.md", TASKS.format(walls="Build four"))
    built.git("commit", "-qam", "Four walls")

    again = built.doit("work")

    assert (again.returncode, built.calls()[3:]) == (2, ["build:2"]), again.stdout + again.stderr
    assert "Ship it?" in again.stdout
    assert built.state()["pendingApproval"] == {"type": "gate", "step": "build"}
    assert built.doflow("approve", "build").returncode == 0
    done = built.doit("work")
    assert (done.returncode, built.calls()[3:]) == (0, ["build:2", "tell"]), done.stdout


def test_a_phase_that_is_forced_is_asked_about_again(built):
    forced = built.doit("work", "--force=build:2")

    assert (forced.returncode, built.calls()[3:]) == (2, ["build:2"]), forced.stdout + forced.stderr
    assert "Ship it?" in forced.stdout


def test_a_yes_to_the_phases_holds_while_they_stay_as_they_are(built):
    done = built.doit("work")

    assert (done.returncode, built.calls()[3:]) == (0, ["tell"]), done.stdout + done.stderr
