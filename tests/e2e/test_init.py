"""`doflow init` and `doflow demo`: a project that runs, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.json_output import everything
from tests.support.project import PROGRAMS, Project, clean_environment

# init


def bare(tmp_path: Path) -> Project:
    """A repository that knows nothing of doflow."""
    made = Project(tmp_path)
    for name in made.tree():
        (made.root / name).unlink()
    made.commit()
    return made


@pytest.mark.smoke
def test_init_makes_a_project_that_runs(tmp_path: Path):
    project = bare(tmp_path)
    told = project.doflow("init", "--agent", "rehearsal", "--flow", "release")

    assert told.returncode == 0, told.stderr
    assert "wrote dodo.py\nwrote doflow.yaml\n" in told.stdout
    assert 'git add dodo.py doflow.yaml flows/release.yaml .gitignore && git commit -m "Add doflow"' in told.stdout
    assert project.doflow("validate", "release", "doflow.yaml").returncode == 0
    project.commit()
    assert project.doit("tiny", "--goal=x").returncode == 0
    project.git("switch", "-q", "main")
    assert project.doit("release", "--goal=y").returncode == 2


def test_init_twice_changes_nothing(tmp_path: Path):
    project = bare(tmp_path)
    project.doflow("init", "--flow", "release")
    before = project.tree()
    told = project.doflow("init", "--flow", "release", "--agent", "rehearsal")

    assert (told.returncode, project.tree()) == (0, before)
    for name in ("dodo.py", "doflow.yaml", "flows/release.yaml"):
        assert f"{name} already exists" in told.stdout


def test_init_leaves_a_dodo_file_of_your_own_alone(tmp_path: Path):
    project = bare(tmp_path)
    project.write("dodo.py", "def task_mine():\n    return {'actions': []}\n")
    told = project.doflow("init")

    assert project.read("dodo.py").startswith("def task_mine")
    assert "Add these two lines to it:\n    import doflow\n    globals().update(doflow.dodo())\n" in told.stdout


def test_init_says_which_agent_it_chose_and_why(tmp_path: Path):
    project = bare(tmp_path)
    told = project.doflow("init", env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})

    assert "agent: rehearsal (none of claude, codex, opencode, gemini is on your PATH" in told.stdout
    assert project.doflow("config", "agents.default.use").stdout.split()[-2:] == ["rehearsal", "doflow.yaml:3"]


def test_init_outside_of_git_is_refused_and_writes_nothing(tmp_path: Path):
    project = Project(tmp_path, git=False)
    for path in project.root.iterdir():
        path.unlink()
    project.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)  # whatever stands in the system's temporary folder
    told = project.doflow("init")

    assert told.returncode == 1
    assert "is not in a git repository" in told.stderr
    assert f"git -C '{project.root}' init" in told.stderr
    assert project.tree() == {}


@pytest.mark.parametrize("words", [("--agent", "clod"), ("--flow", "list"), ("--flow", "Bad Name")])
def test_init_with_bad_words_writes_nothing(tmp_path: Path, words: tuple[str, ...]):
    project = bare(tmp_path)
    told = project.doflow("init", *words)

    assert (told.returncode, project.tree()) == (1, {})
    assert "hint: " in told.stderr


# demo


@pytest.mark.smoke
def test_the_demo_needs_no_identity_no_network_and_touches_nothing(tmp_path: Path):
    """Also from inside another repository, with git variables that lead elsewhere."""
    project = Project(tmp_path)
    before = everything(project.root)
    env = clean_environment(tmp_path / "nobody")
    env |= {"TMPDIR": str(tmp_path / "tmp"), "GIT_DIR": str(project.root / ".git")}
    (tmp_path / "tmp").mkdir()
    words = (PROGRAMS / "doflow", "demo", "--remove")
    told = subprocess.run(words, cwd=project.root, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert (told.returncode, told.stderr) == (0, "")
    assert "done: 001-let-people-log-in (feature)" in told.stdout
    assert "Doflow-Step: implement Doflow-Phase: 3" in told.stdout
    assert told.stdout.index("running the same command again") < told.stdout.rindex("-- feature:specify")
    assert everything(project.root) == before
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_demo_that_the_path_does_not_know_names_its_programs_in_full(project: Project, tmp_path: Path):
    way = os.pathsep.join(name for name in project.env["PATH"].split(os.pathsep) if not Path(name, "doflow").exists())
    told = project.doflow("demo", "--dir", str(tmp_path / "try"), env={"PATH": way})

    assert f"\n  {PROGRAMS / 'doflow'} status 1 " in told.stdout
    assert f"\n  {PROGRAMS / 'doit'} feature " in told.stdout


def test_a_kept_demo_is_a_project_to_play_with(project: Project, tmp_path: Path):
    told = project.doflow("demo", "--dir", str(tmp_path / "try"))

    assert told.returncode == 0
    assert f"the project is in {tmp_path / 'try'}" in told.stdout
    assert ("\n  doflow status 1 " in told.stdout, "log --reverse --no-color --format=…\n" in told.stdout) == (
        True,
        True,
    )
    shown = json.loads(project.doflow("status", "--json", cwd=tmp_path / "try").stdout)
    assert [row["status"] for row in shown["runs"]] == ["completed"]
    assert (tmp_path / "try" / "__pycache__").exists(), "doit leaves it, and a new user is not to stumble over it"
    assert project.git("status", "--porcelain", cwd=tmp_path / "try") == ""
    again = project.doflow("demo", "--dir", str(tmp_path / "try"))
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
