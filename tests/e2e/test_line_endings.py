"""Line ends that git turns at checkout are no edit, and a history that was taken back is done again."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """\
flow: work
params: {goal: {required: true}}
steps:
  one: {prompt: Go, reads: [input.md], makes: one.md}
  tasks: {prompt: List, reads: [one.md], makes: tasks.md}
  two: {prompt: More, reads: ["tasks.md#Phase 1"], makes: two.md}
  build: {kind: implement, phases: tasks.md, prompt: Build}
"""
CALLS = ["one", "tasks", "two", "build:1", "build:2"]


@pytest.fixture
def done(project: Project) -> Project:
    project.write(".gitattributes", "* text=auto eol=crlf\n")
    project.flow("work", FLOW)
    project.commit("Ground")
    assert project.doit("work", "--goal=two\nlines").returncode == 0
    assert project.calls() == CALLS
    project.forget_calls()
    return project


@pytest.mark.smoke
def test_a_clone_with_other_line_ends_is_up_to_date(done, tmp_path):
    clone = Project(tmp_path, "clone", git=False)
    for path in sorted(clone.root.iterdir()):
        path.unlink()
    clone.git("clone", "-q", str(done.root), ".")
    clone.git("switch", "-q", "001-two-lines")

    ran = clone.doit("work")

    assert b"\r\n" in (clone.run_dir() / "one.md").read_bytes()
    assert (ran.returncode, clone.calls()) == (0, []), ran.stdout + ran.stderr
    assert clone.git("status", "--porcelain") == ""


def test_a_run_that_was_reset_behind_its_first_commit_is_done_again(done):
    done.git("reset", "-q", "--hard", "main")

    ran = done.doit("work")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "input.md was missing; restored from the event log" in ran.stdout
    assert done.calls() == CALLS
    assert done.read("specs/001-two-lines/input.md") == "two\nlines\n"
    assert done.git("status", "--porcelain") == ""
