"""Folders of artifacts that are symbolic links: refused before anything is begun or paid."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = "flow: work\nsteps:\n  one: {{prompt: A, makes: {makes}}}\n"


@pytest.mark.smoke("../outside-of-it")
@pytest.mark.parametrize("target", ["inner", "../outside-of-it"])
def test_a_linked_folder_of_runs_is_named_and_nobody_is_called(target: str, project: Project) -> None:
    (project.root / target).mkdir()
    project.write("inner/.keep", "")
    (project.root / "specs").symlink_to(target)
    project.flow("work", FLOW.format(makes="one.md"))
    before = project.commit("A link")

    done = project.doit("work", "--goal=x")

    said = done.stdout + done.stderr
    assert done.returncode == 1 and project.calls() == [], said
    assert f"specs is a symbolic link (to {target}), so the run folder cannot be watched or committed" in said
    assert "rm 'specs' && mkdir 'specs'" in said
    assert (project.git("rev-parse", "HEAD").strip(), project.git("branch", "--show-current")) == (before, "main\n")
    assert project.git("status", "--porcelain") == "" and list((project.root / target).glob("0*")) == []

    (project.root / "specs").unlink()
    (project.root / "specs").mkdir()
    project.commit("A folder")
    assert project.doit("work", "--goal=x").returncode == 0


@pytest.mark.parametrize("makes", ["/docs/deep/one.md", "pages/one.md"])
def test_so_is_a_link_above_an_artifact(makes: str, project: Project) -> None:
    project.flow(
        "work", f"flow: work\nsteps:\n  zero: {{prompt: A, makes: zero.md}}\n  one: {{prompt: A, makes: {makes}}}\n"
    )
    project.write("inner/deep/.keep", "")
    link = "docs" if makes.startswith("/") else "specs/001-x/pages"
    project.commit("A flow")
    if link != "docs":
        assert project.doit("work", "--goal=x", "--next").returncode == 0
    (project.root / link).symlink_to(project.root / "inner")
    before = project.calls()

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1 and project.calls() == before
    assert f"{link} is a symbolic link" in done.stdout + done.stderr
