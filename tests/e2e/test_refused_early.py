"""What cannot go well is refused before anything is written or paid, in words that say where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support import house
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


@pytest.mark.smoke
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
    page = (house.TOP / "docs" / "commands.md").read_text()
    calls = re.compile(r'\b(?:events\.add|_record|record)\(\s*"([a-z_]+)"')
    written = {name for path in Path(house.TOP, "src").rglob("*.py") for name in calls.findall(path.read_text())}

    assert {"returned", "intent", "step_complete"} - written == {"step_complete"} - written
    assert {name for name in written if f"`{name}`" not in page} == set()
