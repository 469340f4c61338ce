"""What cannot go well is refused before anything is written or paid, in words that say where."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.support import checkout
from tests.support.project import Project, eventually

FLOW = "flow: small\nsteps:\n  plan: {prompt: Plan it., makes: plan.md%s}\n"


def untouched(project: Project) -> bool:
    branches = project.git("branch", "--format=%(refname:short)").split()
    return (project.calls(), project.runs(), branches) == ([], [], ["main"])


@pytest.mark.smoke
def test_with_settings_that_cannot_be_read_nothing_runs_on_defaults(project: Project) -> None:
    project.flow("small", FLOW % "")
    project.settings("protekt: [LICENSE]\n")

    done = project.doit("small", "--goal=x")

    assert (done.returncode, untouched(project)) == (1, True)
    assert "doflow.yaml:3:1: unknown key 'protekt'" in done.stderr
    assert "did you mean 'protect'?" in done.stderr


def test_a_broken_flow_shows_its_problem_not_a_complaint_about_options(project: Project) -> None:
    project.flow("small", "flow: small\nsteps:\n  plan: {promt: Plan it., makes: plan.md}\n")

    done = project.doit("small", "--goal=x")

    assert (done.returncode, untouched(project)) == (1, True)
    assert "flows/small.yaml:3:10: unknown key 'promt'" in done.stdout + done.stderr
    assert "not recognized" not in done.stdout + done.stderr


def test_one_broken_flow_does_not_hide_the_others(project: Project) -> None:
    project.flow("broken", "flow: broken\nsteps: 3\n")
    project.flow("small", FLOW % "")

    done = project.doit("small", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["plan"])


def test_an_agent_finds_the_folder_of_its_artifact(project: Project) -> None:
    project.flow("deep", "flow: deep\nsteps:\n  page: {prompt: Write., makes: pages/de/home.md}\n")
    project.agent('makes[0].write_text("Home\\n")')

    done = project.doit("deep", "--goal=x")

    assert (done.returncode, (project.run_dir() / "pages/de/home.md").read_text()) == (0, "Home\n"), done.stdout


@pytest.mark.smoke
def test_a_prompt_knows_the_words_of_the_item_it_is_for(project: Project) -> None:
    project.flow(
        "pages",
        """\
        flow: pages
        steps:
          list: {prompt: List the pages., makes: pages.yaml}
          page: {prompt: "Page {index}: {item_name}.", foreach: pages.yaml, makes: "{item_name}.txt"}
        """,
    )
    project.agent('make("- {name: home}\\n- {name: help}\\n") if step == "list" else make(prompt)')

    done = project.doit("pages", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [text.splitlines()[0] for text in project.prompts()[1:]] == ["Page 1: home.", "Page 2: help."]


def test_a_word_that_no_item_has_is_still_refused(project: Project) -> None:
    project.flow("pages", 'flow: pages\nsteps:\n  page: {prompt: "Page {name}.", foreach: [a], makes: "{item}.txt"}\n')

    done = project.doflow("validate", "pages")

    assert done.returncode == 1
    assert "{name} is not a param of this flow" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [("nope",), ("small", "--nope"), ("small:nope",), ("small", "--run=9"), ("small", "--project-dir=/nowhere")],
)
def test_an_error_before_a_run_exists_is_one_object_with_the_keys_of_every_line(project: Project, words) -> None:
    project.flow("small", FLOW % "")

    done = project.doflow("run", *words, "--json")

    assert (done.returncode, done.stdout, untouched(project)) == (1, "", True)
    _told(done.stderr)


def test_a_run_that_is_in_the_way_is_told_with_its_hint_as_a_key(project: Project) -> None:
    project.flow("small", FLOW % "")
    project.commit("A flow")
    project.agent("time.sleep(30)")
    running = project.start("doit", "small", "--goal=x")
    try:
        assert eventually(lambda: project.calls() == ["plan"])
        told = _told(project.doflow("run", "small", "--goal=y", "--json").stderr)
    finally:
        running.terminate()
        running.communicate(timeout=60)
    assert str(running.pid) in told["message"] + told["hint"]


def _told(stderr: str) -> dict:
    told = json.loads(stderr)
    assert (told["event"], told["run"], told["at"][:2]) == ("error", "", "20")
    assert told["message"] and told["hint"] and "hint:" not in told["message"], told
    return told


@pytest.mark.smoke
def test_every_event_that_doflow_writes_is_in_the_docs() -> None:
    page = (checkout.TOP / "docs" / "commands.md").read_text()
    calls = re.compile(r'\b(?:events\.add|_record|record)\(\s*"([a-z_]+)"')
    written = {name for path in Path(checkout.TOP, "src").rglob("*.py") for name in calls.findall(path.read_text())}

    assert {"returned", "intent", "step_complete"} - written == {"step_complete"} - written
    assert {name for name in written if f"`{name}`" not in page} == set()


# --- branches and folders that cannot be had


ONE_STEP = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"


@pytest.fixture
def here(project):
    project.flow("work", ONE_STEP)
    project.commit("Ground")
    return project


def state_on_disk(project) -> tuple[object, ...]:
    """What a refusal leaves as it is."""
    folder = project.root / ".doflow/runs"
    started = sorted(os.listdir(folder)) if folder.is_dir() else []
    return started, project.git("for-each-ref"), project.git("symbolic-ref", "HEAD"), project.tree()


NAMES = ("-x", "HEAD", "@", "a..b", "x.lock", "a/.b", "a b", "/x", "x/", "a//b", "@{-1}", "feature/HEAD^", "x.")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_git_takes_for_no_branch_is_refused_before_anything_is_written(here, name):
    before = state_on_disk(here)

    done = here.doit("work", "--goal=x", f"--branch={name}")

    assert done.returncode == 1
    assert f"{name!r} is not a valid branch name" in done.stdout
    assert state_on_disk(here) == before


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
    before = state_on_disk(here)

    done = here.doit("work", "--goal=x", f"--branch={wanted}")

    assert done.returncode == 1
    assert f"branch {wanted} conflicts with the existing branch {there}" in done.stdout
    assert state_on_disk(here) == before
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
    before = state_on_disk(here)

    done = here.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "specs is a file" in done.stdout
    assert state_on_disk(here) == before


@pytest.mark.parametrize("name", ["feature/x", "Feature", "feature_1", "v1.0", "ümlaut", "refs/heads/x"])
def test_a_name_that_git_takes_is_taken(here, name):
    done = here.doit("work", "--goal=x", f"--branch={name}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert here.git("symbolic-ref", "HEAD") == f"refs/heads/{name}\n"


def locked(project, name: str) -> None:
    """Another git seems to make this very branch: no one can make it now."""
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
