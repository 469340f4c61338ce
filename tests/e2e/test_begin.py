"""A run that cannot begin: what can be known is refused before anything is written, the rest is a failed run on the disk."""

from __future__ import annotations

import json
import os

import pytest

FLOW = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"


@pytest.fixture
def here(project):
    project.flow("work", FLOW)
    project.commit("Ground")
    return project


def everything(project) -> tuple[object, ...]:
    """What a refusal leaves as it is."""
    folder = project.root / ".doflow/runs"
    begun = sorted(os.listdir(folder)) if folder.is_dir() else []
    return begun, project.git("for-each-ref"), project.git("symbolic-ref", "HEAD"), project.tree()


NAMES = ("-x", "HEAD", "@", "a..b", "x.lock", "a/.b", "a b", "/x", "x/", "a//b", "@{-1}", "feature/HEAD^", "x.")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_git_takes_for_no_branch_is_refused_before_anything_is_written(here, name):
    before = everything(here)

    done = here.doit("work", "--goal=x", f"--branch={name}")

    assert done.returncode == 1
    assert f"{name!r} is not a valid branch name" in done.stdout
    assert everything(here) == before


@pytest.mark.smoke("feature-feature/x-False")
@pytest.mark.parametrize(
    ("there", "wanted", "packed"),
    [
        ("feature", "feature/x", False),
        ("feature", "feature/x", True),
        ("feature/x", "feature", False),
        ("feature/x", "feature", True),
    ],
)
def test_a_branch_that_is_the_folder_of_another_one_is_refused_before_anything_is_written(here, there, wanted, packed):
    here.git("branch", there)
    if packed:
        here.git("pack-refs", "--all")
    before = everything(here)

    done = here.doit("work", "--goal=x", f"--branch={wanted}")

    assert done.returncode == 1
    assert f"branch {wanted} conflicts with the existing branch {there}" in done.stdout
    assert everything(here) == before
    assert here.doit("work", "--goal=x", "--branch=my-feature").returncode == 0
    assert here.git("symbolic-ref", "HEAD") == "refs/heads/my-feature\n"


def test_the_same_for_a_program_is_one_error_before_a_run_exists(here):
    here.git("branch", "feature")

    done = here.doflow("run", "work", "--goal=x", "--branch=feature/x", "--json")

    assert (done.returncode, done.stdout) == (1, "")
    told = json.loads(done.stderr)
    assert (told["event"], told["run"]) == ("error", "")


def test_a_file_where_the_folder_of_runs_would_be_is_refused_before_anything_is_written(here):
    here.write("specs", "mine\n")
    here.commit("A file")
    before = everything(here)

    done = here.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "specs is a file" in done.stdout
    assert everything(here) == before


@pytest.mark.parametrize("name", ["feature/x", "Feature", "feature_1", "v1.0", "ümlaut", "refs/heads/x"])
def test_a_name_that_git_takes_is_taken(here, name):
    done = here.doit("work", "--goal=x", f"--branch={name}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert here.git("symbolic-ref", "HEAD") == f"refs/heads/{name}\n"


def locked(project, name: str) -> None:
    """Another git seems to make this very branch: nobody can make it now."""
    lock = project.root / ".git/refs/heads" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()


@pytest.mark.smoke
def test_what_breaks_between_the_first_line_and_the_first_step_is_a_failed_run_with_its_error(here):
    locked(here, "mine")

    done = here.doit("work", "--goal=x", "--branch=mine")

    assert done.returncode == 1
    assert [entry["event"] for entry in here.events("001-x")] == ["run_started", "error"]
    state = here.state("001-x")
    assert state["status"] == "failed"
    assert state["pauseReason"] == here.events("001-x")[-1]["message"]
    assert "died" not in here.doflow("status").stdout
    assert here.git("symbolic-ref", "HEAD") == "refs/heads/main\n"


def test_after_that_the_same_goal_begins_on_another_branch(here):
    locked(here, "mine")
    here.doit("work", "--goal=x", "--branch=mine")

    done = here.doit("work", "--goal=x", "--branch=other")

    assert done.returncode == 0, done.stdout + done.stderr
    assert here.runs() == ["001-x"]
    assert here.git("symbolic-ref", "HEAD") == "refs/heads/other\n"
    assert (here.state("001-x")["status"], here.state("001-x")["branch"]) == ("completed", "other")
    assert here.doflow("verify").returncode == 0
    assert "nothing to do" in here.doit("work").stdout


def test_a_program_hears_of_it_as_an_event_of_the_run(here):
    locked(here, "mine")

    done = here.doflow("run", "work", "--goal=x", "--branch=mine", "--json")

    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [(entry["event"], entry["run"]) for entry in told] == [("run_started", "001-x"), ("error", "001-x")]
    assert done.stderr == ""
