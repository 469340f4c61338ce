"""A command is watched when its flow says what it may change: `writes`, `protect`."""

from __future__ import annotations

import pytest
from tests.support.project import Project


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("key", "command", "stray"),
    [
        ("protect: [PRD.md]", "echo x > PRD.md; echo y > free.txt", "PRD.md"),
        ('writes: ["build/**"]', "mkdir -p build; echo x > build/a; echo y > src.txt", "src.txt"),
        ("writes: []", "git config core.pager evil", ".git/config"),
    ],
)
def test_what_it_may_not_is_put_back_and_the_step_fails(project: Project, key: str, command: str, stray: str) -> None:
    project.write("PRD.md", "as it was\n")
    project.flow("work", f'flow: work\nsteps:\n  one: {{kind: shell, run: [sh, -c, "{command}"], {key}}}\n')
    project.commit("Ground")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert f"one modified files outside its scope: {stray}" in done.stdout
    assert project.read("PRD.md") == "as it was\n"
    assert "evil" not in project.read(".git/config")
    assert project.git("status", "--porcelain", "--", "src.txt", "PRD.md") == ""


def test_a_command_of_which_nothing_is_said_is_yours(project: Project) -> None:
    project.write("PRD.md", "as it was\n")
    project.settings("protect: [PRD.md]\n")
    project.flow("work", 'flow: work\nsteps:\n  one: {kind: shell, run: [sh, -c, "echo mine > PRD.md"]}\n')
    project.commit("Ground")

    assert project.doit("work", "--goal=x").returncode == 0
    assert project.read("PRD.md") == "mine\n"
