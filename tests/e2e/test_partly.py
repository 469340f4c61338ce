"""A command that asks for a part of a run ends well: nobody died."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project


@pytest.mark.smoke("next")
@pytest.mark.parametrize("words", [("tiny", "--goal=x", "--next"), ("tiny:plan", "--goal=x")], ids=["next", "one step"])
def test_a_run_that_was_asked_for_in_part_waits_for_the_rest(words: tuple[str, ...], project: Project) -> None:
    done = project.doit(*words)
    assert done.returncode == 0, done.stdout + done.stderr

    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]

    assert (row["status"], row["died"], row["next"]) == ("active", False, "doit tiny")
    assert "not run yet" in row["waits"] and project.state()["status"] == "active"
    assert "died" not in project.doflow("status").stdout + project.doflow("status", "1").stdout
    assert project.doflow("verify").returncode == 0


def test_a_phase_that_was_asked_for_by_name_is_no_death_either(project: Project) -> None:
    for words in (("tiny:tasks", "--goal=x"), ("tiny:implement:1",)):
        assert project.doit(*words).returncode == 0

    assert json.loads(project.doflow("status", "--json").stdout)["runs"][0]["died"] is False
    assert project.doflow("verify").returncode == 0

    assert project.doit("tiny:implement").returncode == 0
    assert json.loads(project.doflow("status", "--json").stdout)["runs"][0]["status"] == "completed"
