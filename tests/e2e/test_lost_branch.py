"""The branch of a run was renamed or deleted: what is said can be typed, and it goes on."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.project import PROGRAMS, Project

FLOW = """
    flow: work
    steps:
      plan: {prompt: Plan., makes: plan.md, gate: All right?}
      end: {prompt: End., makes: end.md}
"""
GONE = "001-x no longer exists"


@pytest.fixture
def waiting(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    assert project.doit("work", "--goal=x").returncode == 2
    return project


def advised(project: Project) -> tuple[str, str]:
    """What status says of the run, and the first command that it names."""
    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]
    return row["waits"], row["next"].split("   ")[0]


def typed(project: Project, command: str) -> int:
    """A person types it."""
    path = f"{PROGRAMS}:{project.env['PATH']}"
    done = subprocess.run(
        ("sh", "-c", command),
        cwd=project.root,
        env=project.env | {"PATH": path},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode


def finishes(project: Project) -> None:
    assert project.doflow("approve").returncode == 0
    done = project.doit("work")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.calls() == ["plan", "end"] and project.git("status", "--porcelain") == ""
    assert project.doflow("verify").returncode == 0


@pytest.mark.smoke
def test_a_renamed_branch_is_named_and_the_run_is_taken_up_on_it(waiting: Project) -> None:
    waiting.git("branch", "-m", "feature/nice")

    words, command = advised(waiting)

    assert GONE in words and command == "doit work --run=001-x --reopen"
    refused = waiting.doflow("approve", "plan", "--run=001-x")
    assert refused.returncode == 1 and "which no longer exists" in refused.stderr and command in refused.stderr
    found = waiting.doflow("verify")
    assert found.returncode == 1 and GONE in found.stdout and command in found.stdout
    assert typed(waiting, command) == 2, "the gate asks again"
    assert advised(waiting)[1] == "doflow approve plan"
    finishes(waiting)
    assert waiting.git("branch", "--show-current") == "feature/nice\n"


def test_a_branch_that_was_squashed_and_deleted_goes_on_where_it_was_merged(waiting: Project) -> None:
    waiting.git("switch", "-q", "main")
    waiting.git("merge", "-q", "--squash", "001-x")
    waiting.commit("Squashed")
    waiting.git("branch", "-q", "-D", "001-x")

    words, command = advised(waiting)

    assert GONE in words and waiting.doflow("verify").returncode == 1
    assert typed(waiting, command) == 2
    finishes(waiting)


def test_a_branch_that_was_deleted_unmerged_can_be_brought_back(waiting: Project) -> None:
    waiting.git("switch", "-q", "main")
    waiting.git("branch", "-q", "-D", "001-x")

    words, command = advised(waiting)

    assert GONE in words and command.startswith("git switch -c 001-x ")
    found = waiting.doflow("verify")
    assert found.returncode == 1 and GONE in found.stdout and command in found.stdout
    assert command in waiting.doit("work").stderr
    assert typed(waiting, command) == 2
    finishes(waiting)


def test_a_finished_run_misses_nothing_when_its_merged_branch_is_gone(waiting: Project) -> None:
    finishes(waiting)
    waiting.git("switch", "-q", "main")
    waiting.git("merge", "-q", "--squash", "001-x")
    waiting.commit("Squashed")
    waiting.git("branch", "-q", "-D", "001-x")

    assert waiting.doflow("verify").returncode == 0
    assert json.loads(waiting.doflow("status", "--json").stdout)["runs"][0]["status"] == "completed"
