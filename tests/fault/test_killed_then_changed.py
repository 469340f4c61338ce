"""doflow is killed when an agent has returned and nothing is committed; then a person changes something; then it goes on."""

from __future__ import annotations

import signal
import textwrap

import pytest
from tests.fault.test_kept_results import TASKS, checking, coded, repaired, stopped
from tests.support.project import Project

STEP = """
    flow: work
    defaults: {{retry: {{attempts: 0}}}}
    steps:
      a: {{prompt: Write it, reads: [/story.txt], makes: a.md, check: {{run: [sh, {check}]}}}}
"""
PHASE = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      impl: {kind: implement, phases: /tasks.md, prompt: Do it}
"""
CHECK = """
    touch {outside}/checking
    while test -e {outside}/wait; do sleep 0.05; done
"""


@pytest.fixture
def killed(project: Project) -> Project:
    """A step, killed in the check of what its agent had made of story.txt."""
    check = project.outside / "check.sh"
    check.write_text(CHECK.format(outside=project.outside))
    project.flow("work", STEP.format(check=check))
    project.write("story.txt", "once\n")
    project.commit("Ground")
    project.agent('make("about: " + (root / "story.txt").read_text())')
    stopped(project, signal.SIGKILL, checking(project, "work", "--goal=x"))
    assert (project.calls(), (project.run_dir() / "a.md").read_text()) == (["a"], "about: once\n")
    return project


@pytest.fixture
def phase(project: Project) -> Project:
    """A phase, killed in the check of code.py (which is wrong yet) and pkg/new.py."""
    stopped(coded(project), signal.SIGKILL, checking(project, "work", "--goal=x"))
    return project


@pytest.mark.smoke
def test_the_result_is_not_taken_when_its_input_was_edited_since(killed):
    killed.write("story.txt", "twice\n")

    again = killed.doit("work")

    assert (again.returncode, killed.calls()) == (0, ["a", "a"]), again.stdout + again.stderr
    assert (killed.run_dir() / "a.md").read_text() == "about: twice\n"
    assert killed.git("show", "HEAD:specs/001-x/a.md") == "about: twice\n"
    assert killed.doit("work").returncode == 0
    assert killed.calls() == ["a", "a"]


def test_the_result_is_taken_when_its_input_is_as_it_was_again(killed):
    killed.write("story.txt", "twice\n")
    killed.write("story.txt", "once\n")

    again = killed.doit("work")

    assert (again.returncode, killed.calls()) == (0, ["a"]), again.stdout + again.stderr
    assert killed.git("show", "HEAD:specs/001-x/a.md") == "about: once\n"


def test_a_file_of_a_phase_that_was_deleted_during_its_check_is_there_again(phase):
    """No one can tell whether the killed agent deleted it or a person: what was returned is complete again."""
    (phase.root / "pkg/new.py").unlink()

    again = phase.doit("work")

    assert (again.returncode, phase.calls()) == (0, ["impl:1", "impl:1 repair"]), again.stdout + again.stderr
    repaired(phase)


@pytest.fixture
def uncommitted(project: Project) -> Project:
    """A phase that changed one.py and made two.py, killed in the hook of its commit."""
    project.settings("git: {verify: true}\n")
    project.flow("work", PHASE)
    project.write("tasks.md", TASKS)
    project.write("one.py", "old\n")
    project.commit("Ground")
    project.agent('put("one.py", f"{nth}\\n"); put("two.py", f"{nth}\\n")')
    hook = project.write(".git/hooks/pre-commit", "#!/bin/sh" + textwrap.dedent(CHECK.format(outside=project.outside)))
    hook.chmod(0o755)
    stopped(project, signal.SIGKILL, checking(project, "work", "--goal=x"))
    assert (project.calls(), project.subjects()) == (["impl:1"], ["Begin", "Ground"])
    return project


def test_a_phase_killed_before_its_commit_is_committed_without_a_call(uncommitted):
    again = uncommitted.doit("work")

    assert (again.returncode, uncommitted.calls()) == (0, ["impl:1"]), again.stdout + again.stderr
    assert uncommitted.git("ls-files", "*.py").split() == ["dodo.py", "one.py", "two.py"]


@pytest.mark.smoke
def test_a_phase_whose_files_were_all_deleted_before_its_commit_is_done_again(uncommitted):
    (uncommitted.root / "one.py").unlink()
    (uncommitted.root / "two.py").unlink()

    again = uncommitted.doit("work")

    assert (again.returncode, uncommitted.calls()) == (0, ["impl:1", "impl:1"]), again.stdout + again.stderr
    assert uncommitted.git("show", "HEAD:one.py") == "1\n"


def test_a_phase_of_which_one_file_was_deleted_before_its_commit_goes_on_without_it(uncommitted):
    (uncommitted.root / "two.py").unlink()

    again = uncommitted.doit("work")

    assert (again.returncode, uncommitted.calls()) == (0, ["impl:1"]), again.stdout + again.stderr
    assert "two.py: changed since the agent of impl:1 returned; included in its result" in again.stdout
    assert uncommitted.git("ls-files", "one.py", "two.py").split() == ["one.py"]
    assert uncommitted.git("status", "--porcelain") == ""
