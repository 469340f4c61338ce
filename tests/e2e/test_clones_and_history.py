"""A run elsewhere or with another past: clones, lost state, rebases, commits taken back, line endings."""

from __future__ import annotations

import shutil

import pytest
from tests.support.project import Project
from tests.support.reruns import CHAIN, CODES, WORK, again, chain, work


@pytest.mark.smoke
def test_without_its_state_folder_a_run_calls_no_agent(project):
    chain(project)
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert project.state()["status"] == "completed"
    assert project.git("status", "--porcelain") == ""


def test_without_its_state_folder_a_run_with_its_goal_calls_no_agent(project):
    chain(project)
    shutil.rmtree(project.root / ".doflow")

    assert again(project, "chain", "--goal=Say it") == []
    assert project.runs() == ["001-say-it"]


def test_a_fresh_clone_of_the_branch_calls_no_agent(project, tmp_path):
    chain(project)
    project.git("clone", "-q", "-b", "001-say-it", str(project.root), str(tmp_path / "clone"))

    done = project.doit("chain", cwd=tmp_path / "clone")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr


def test_a_clone_that_switches_to_the_branch_calls_no_agent(project, tmp_path):
    work(project)
    clone = tmp_path / "clone"
    project.git("switch", "-q", "main")
    project.git("clone", "-q", str(project.root), str(clone))
    project.git("switch", "-q", project.state()["branch"], cwd=clone)

    done = project.doit("work", cwd=clone)

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr
    assert project.git("status", "--porcelain", cwd=clone) == ""


@pytest.mark.smoke
def test_half_a_run_goes_on_in_a_clone(project, tmp_path):
    project.flow("chain", CHAIN)
    project.write("flows/prompts/one.md", "Write one.\n")
    project.agent("usual() if step != 'three' else stop(1)")
    project.commit("A flow")
    assert project.doit("chain", "--goal=Say it").returncode == 1
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    project.agent("usual()")
    project.forget_calls()

    done = project.doit("chain", cwd=clone)

    assert (done.returncode, project.calls()) == (0, ["three"]), done.stdout + done.stderr


@pytest.mark.smoke
def test_a_lock_that_was_deleted_is_taken_from_head(project):
    chain(project)
    lock = project.run_dir() / "doflow.lock"
    text = lock.read_text()
    lock.unlink()

    assert again(project) == []
    assert lock.read_text() == text


def test_a_lock_that_was_deleted_with_the_state_folder_is_taken_from_head(project):
    chain(project)
    (project.run_dir() / "doflow.lock").unlink()
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert project.runs() == ["001-say-it"]


@pytest.mark.smoke
def test_a_lock_that_was_removed_from_history_is_rebuilt_from_trailers(project):
    chain(project)
    project.git("rm", "-q", "specs/001-say-it/doflow.lock")
    project.git("commit", "-q", "-m", "Away with it")
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert (project.runs(), (project.run_dir() / "doflow.lock").exists()) == (["001-say-it"], True)
    assert again(project) == []


def test_phases_of_a_run_whose_lock_is_gone_from_history_are_known_by_trailers(project):
    work(project)
    lock = next(project.root.glob("specs/*/doflow.lock"))
    project.git("rm", "-q", str(lock))
    project.git("commit", "-q", "-m", "Away with it")
    shutil.rmtree(project.root / ".doflow")

    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_rebase_of_the_branch_makes_nothing_stale(project):
    work(project)
    branch = project.state()["branch"]
    project.git("switch", "-q", "main")
    project.write("other.txt", "x\n")
    project.commit("Other work")
    project.git("switch", "-q", branch)
    project.git("rebase", "-q", "main")

    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_phase_whose_commit_was_taken_back_is_done_again(project):
    work(project)
    project.git("reset", "-q", "--hard", "HEAD~1")

    assert again(project, "work") == ["implement:2"]


def test_a_shallow_clone_calls_no_agent(project, tmp_path):
    work(project)
    project.git("clone", "-q", "--depth", "1", f"file://{project.root}", str(tmp_path / "clone"))

    done = project.doit("work", cwd=tmp_path / "clone")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr


def test_a_copy_of_a_project_looks_at_its_own_files_and_not_at_those_of_the_original(project, tmp_path):
    project.flow("work", WORK)
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.doit("work").returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(project.root, copy, symlinks=True)
    project.forget_calls()
    (path,) = copy.glob("specs/*/tasks.md")
    path.write_text(path.read_text().replace("Build the house", "Build a castle"))
    project.agent(CODES)

    for program in (project.doit, project.doflow):
        words = ("work",) if program == project.doit else ("run", "work")
        assert program(*words, cwd=copy).returncode == 0
        assert project.calls() == ["implement:2"]
    flow = copy / "flows" / "work.yaml"
    flow.write_text(flow.read_text() + "bogus: 1\n")
    assert (project.doit("work", cwd=copy).returncode, project.doit("work").returncode) == (1, 0)
    assert project.calls() == ["implement:2"]


# --- line endings


MIXED_READS = """\
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
def converted(project: Project) -> Project:
    project.write(".gitattributes", "* text=auto eol=crlf\n")
    project.flow("work", MIXED_READS)
    project.commit("Ground")
    assert project.doit("work", "--goal=two\nlines").returncode == 0
    assert project.calls() == CALLS
    project.forget_calls()
    return project


@pytest.mark.smoke
def test_a_clone_with_other_line_ends_is_up_to_date(converted, tmp_path):
    clone = Project(tmp_path, "clone", git=False)
    for path in sorted(clone.root.iterdir()):
        path.unlink()
    clone.git("clone", "-q", str(converted.root), ".")
    clone.git("switch", "-q", "001-two-lines")

    ran = clone.doit("work")

    assert b"\r\n" in (clone.run_dir() / "one.md").read_bytes()
    assert (ran.returncode, clone.calls()) == (0, []), ran.stdout + ran.stderr
    assert clone.git("status", "--porcelain") == ""


def test_a_run_that_was_reset_behind_its_first_commit_is_done_again(converted):
    converted.git("reset", "-q", "--hard", "main")

    ran = converted.doit("work")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "input.md was missing; restored from the event log" in ran.stdout
    assert converted.calls() == CALLS
    assert converted.read("specs/001-two-lines/input.md") == "two\nlines\n"
    assert converted.git("status", "--porcelain") == ""
