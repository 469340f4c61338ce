"""A project that is one folder of a larger repository: what agents do to the rest of it is told."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    steps:
      tasks: {prompt: List., makes: tasks.md}
      build: {kind: implement, phases: tasks.md, prompt: Do.}
"""
AWAY = """
usual()
if step == "tasks":
    put("../shared/code.py", "CHANGED = 1\\n")
    (root / "../shared/gone.py").unlink()
if phase == "1":
    put("../shared/new.py", "NEW = 1\\n")
    put("../.cache/x", "ignored")
"""


@pytest.fixture
def part(tmp_path) -> Project:
    project = Project(tmp_path, "all/shop", git=False)
    top = project.root.parent
    (top / "shared").mkdir()
    for name in ("code.py", "gone.py", "mine.py"):
        (top / "shared" / name).write_text("OLD = 1\n")
    (top / ".gitignore").write_text("__pycache__/\n.doflow/\n.cache/\n")
    project.flow("work", FLOW)
    project.git("init", "-q", "-b", "main", cwd=top)
    project.git("add", "-A", cwd=top)
    project.git("commit", "-qm", "Begin", cwd=top)
    return project


@pytest.mark.smoke
def test_what_changed_outside_of_the_project_while_an_agent_worked_is_named(part: Project) -> None:
    part.agent(AWAY)
    mine = part.root.parent / "shared" / "mine.py"
    mine.write_text("MINE = 1\n")

    done = part.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed outside the project while tasks was running: ../shared/code.py, ../shared/gone.py" in done.stdout
    assert "changed outside the project while build:1 was running: ../shared/new.py" in done.stdout
    assert "not committed with build:1" in done.stdout and "build:2 was running" not in done.stdout
    assert "mine.py" not in done.stdout and "cache" not in done.stdout and mine.read_text() == "MINE = 1\n"
    assert part.git("log", "--format=", "--name-only", "main..", "--", ":(top)shared") == ""


def test_nothing_is_said_where_nothing_else_changed(part: Project) -> None:
    (part.root.parent / "shared" / "mine.py").write_text("MINE = 1\n")

    done = part.doit("work", "--goal=x")

    assert done.returncode == 0 and "outside the project" not in done.stdout
