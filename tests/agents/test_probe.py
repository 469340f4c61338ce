"""Is what `doflow agents` says of the vendors' own CLIs true?"""

from __future__ import annotations

import json

import pytest
from tests.support import clis
from tests.support.model import Fail, Model, Say, play
from tests.support.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def agents(project: Project, *args: str) -> tuple[int, dict]:
    done = project.doflow("agents", "default", "--json", *args, timeout=240)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["agents"][0]


@pytest.mark.parametrize("name", clis.cases())
def test_the_version_that_is_tried_knows_every_flag_and_answers(name: str, project: Project) -> None:
    with Model(play(Say("ready"))) as model:
        clis.use(project, name, model)
        code, found = agents(project, "--probe")

    assert (code, found["version"], found["missing"], found["problem"]) == (0, clis.PROGRAMS[name].tried, [], "")
    assert found["answered"].startswith("in ") and found["login"] == "yes, it answered"
    assert "one word: ready" in model.heard[0].prompt


@pytest.mark.parametrize("name", clis.cases("claude", "codex", "gemini"))
def test_a_login_that_is_missing_or_wrong_is_told(name: str, project: Project) -> None:
    with Model(play(Fail(401))) as model:
        clis.use(project, name, model)
        wrong = agents(project, "--probe")
        project.env = {key: value for key, value in project.env.items() if not key.endswith("_API_KEY")}
        none = agents(project)
        asked = agents(project, "--probe")

    assert wrong[0] == 1 and "log in" in wrong[1]["hint"] and wrong[1]["login"].endswith("_API_KEY: refused")
    assert none[0] == 0 and none[1]["login"] == "not found" and none[1]["hint"] == clis.PROGRAMS[name].login
    assert asked[0] == 1 and asked[1]["login"] == "no" and "log in" in asked[1]["hint"], asked
    assert "/login" in asked[1]["problem"] or "_API_KEY" in asked[1]["problem"]


@pytest.mark.parametrize("name", clis.cases("claude", "codex", "gemini"))
def test_a_limit_is_told_as_what_it_is(name: str, project: Project) -> None:
    with Model(play(Fail(429))) as model:
        clis.use(project, name, model)
        done = project.doflow("agents", "default", "--probe", timeout=240)

    assert done.returncode == 1
    assert "installed, but rate limited" in done.stdout and "default: is rate limited (" in done.stdout
    assert "try again at 20" in done.stdout


@clis.needed("opencode")
def test_a_model_that_there_is_not_is_named_and_the_call_can_be_made_by_hand(project: Project) -> None:
    with Model(play(Say("ready"))) as model:
        clis.use(project, "opencode", model)
        project.write("doflow.yaml", project.read("doflow.yaml").replace("scripted/model", "scripted/other"))
        code, found = agents(project, "--probe")

    assert (code, found["answered"]) == (1, "no")
    assert "Model not found: scripted/other" in found["problem"]
    assert found["hint"].startswith("try it: echo ") and "--model scripted/other" in found["hint"]
