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


@pytest.mark.parametrize("name", clis.cases("claude", "codex"))
def test_a_login_that_is_missing_or_wrong_is_told(name: str, project: Project) -> None:
    with Model(play(Fail(401))) as model:
        clis.use(project, name, model)
        wrong = agents(project, "--probe")
        project.env = {key: value for key, value in project.env.items() if not key.endswith("_API_KEY")}
        none = agents(project)

    assert wrong[0] == 1 and "log in" in wrong[1]["hint"]
    assert none[0] == 0 and none[1]["login"] == "not to be seen" and none[1]["hint"] == clis.PROGRAMS[name].login
