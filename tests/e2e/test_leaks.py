"""R4.18, R4.51, R4.52: code in a run's folder before the first phase is moved to quarantine with a warning; never
once a phase is complete, never outside of the run's folder, never deleted."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """\
flow: work
steps:
  plan: {prompt: Plan, makes: plan.md}
  tasks: {prompt: List, makes: tasks.md}
  build: {kind: implement, phases: tasks.md, prompt: Build}
  tell: {prompt: Tell, makes: end.md}
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("Ground")
    return project


def kept(project: Project) -> list[str]:
    told = json.loads(project.doflow("quarantine", "list", "--json").stdout)
    return [row["path"] for row in told["kept"]]


@pytest.mark.smoke
def test_r4_51_code_that_a_planning_step_leaks_into_its_folder_is_kept_aside_with_a_warning(work):
    work.agent('usual()\nif step == "plan": (run_dir / "app.py").write_text("early")')

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "code was written into specs/001-x before the first phase; moved to quarantine: specs/001-x/app.py"
        in done.stdout
    )
    assert not (work.run_dir() / "app.py").exists()
    assert kept(work) == ["specs/001-x/app.py"]


def test_r4_51_outside_of_the_run_s_folder_it_is_a_refusal_as_ever(work):
    work.agent('usual()\nif step == "plan": put("app.py", "early")')

    done = work.doit("work", "--goal=x")

    assert (done.returncode, "plan modified files outside its scope: app.py" in done.stdout) == (1, True)


@pytest.mark.smoke
def test_r4_18_before_the_first_phase_the_folder_is_swept(work):
    assert work.doit("work:plan", "--goal=x").returncode == 0
    work.write("specs/001-x/lib/code.py", "early\n")
    work.write("specs/001-x/notes.md", "mine\n")

    done = work.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "moved to quarantine: specs/001-x/lib/code.py" in done.stdout
    assert kept(work) == ["specs/001-x/lib/code.py"]
    assert work.read("specs/001-x/notes.md") == "mine\n"


@pytest.mark.smoke
def test_r4_52_once_a_phase_is_complete_nothing_is_swept(work):
    work.agent('if phase == "2" and not nth: stop(1)\nusual()')
    work.settings("retry: {enabled: false}\n")
    work.commit("No second try")
    assert work.doit("work", "--goal=x").returncode == 1
    assert work.subjects()[-1] == "Phase 1: Ground"
    work.write("specs/001-x/code.py", "mine\n")

    done = work.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert work.read("specs/001-x/code.py") == "mine\n"
    assert "before the first phase" not in done.stdout
