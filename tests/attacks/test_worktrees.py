"""Work trees that share one git folder: an agent's deeds are undone, what goes on in another work tree is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.crash import killed_at_work
from tests.support.project import Project

FLOW = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"
#: deletes a branch that is checked out elsewhere and one that is not, moves another, and is at work until it is killed
VANDAL = """
import subprocess, time
if not nth:
    git = lambda *args: subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()
    git("update-ref", "-d", "refs/heads/main")
    git("branch", "-D", "other")
    git("update-ref", "refs/heads/third", git("commit-tree", "-m", "evil", "HEAD^{tree}"))
    (outside / "ready").touch()
    time.sleep(60)
usual()
"""


@pytest.fixture
def linked(project: Project, tmp_path: Path) -> Project:
    """A run in a linked work tree; the main one is on `main`, and a branch `other` is nobody's."""
    project.flow("work", FLOW)
    project.commit("Ground")
    project.git("branch", "other")
    project.git("worktree", "add", "-q", "-b", "here", str(tmp_path / "linked"))
    there = Project.__new__(Project)
    there.__dict__.update(project.__dict__)
    there.root = tmp_path / "linked"
    return there


@pytest.mark.slow
def test_in_a_linked_work_tree_an_agent_is_undone_too(linked, project):
    linked.agent("""
        import subprocess
        subprocess.run("git commit -q --allow-empty -m mine; git branch -D other; git tag mine", shell=True)
        common = subprocess.check_output(["git", "rev-parse", "--git-common-dir"], text=True).strip()
        (pathlib.Path(common) / "hooks/post-commit").write_text("#!/bin/sh")
        usual()
        """)
    before = project.git("rev-parse", "other", "main")

    done = linked.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "write wrote where it may not: .git/hooks/post-commit" in done.stdout
    assert "refs/heads/001-x" in done.stdout and "refs/heads/other" in done.stdout
    assert project.git("rev-parse", "other", "main") == before
    assert linked.subjects() == ["Begin", "Ground"]
    assert not (project.root / ".git/hooks/post-commit").exists()


def test_what_is_committed_in_another_work_tree_meanwhile_stays(linked, project):
    linked.agent(f"""
        import subprocess
        elsewhere = dict(cwd={str(project.root)!r}, check=True)
        subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "By a colleague"], **elsewhere)
        subprocess.run(["git", "pack-refs", "--all"], **elsewhere)
        usual()
        """)

    done = linked.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert project.subjects()[-1] == "By a colleague"
    assert linked.subjects() == ["Begin", "Ground", "write: out.md"]
    assert "changed git itself" not in done.stdout


@pytest.mark.always
def test_a_branch_that_is_gone_under_another_work_tree_is_put_back_and_named(linked, project):
    project.git("commit", "-q", "--allow-empty", "-m", "Nowhere else yet")
    before = project.git("rev-parse", "main")
    linked.agent("""
        import subprocess
        subprocess.run(["git", "update-ref", "-d", "refs/heads/main"], check=True)
        usual()
        """)

    done = linked.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"refs/heads/main ({before[:12]} became nothing)" in done.stdout
    assert project.git("rev-parse", "main", "HEAD").split() == [before.strip()] * 2
    assert project.git("status", "--porcelain") == ""


def killed(linked: Project) -> None:
    """The agent has done its worst, and doflow is killed with it."""
    linked.git("branch", "third")
    killed_at_work(linked, VANDAL)


@pytest.mark.always
def test_after_a_kill_branches_are_put_back_too_and_what_moved_since_stays(linked, project):
    before = linked.git("rev-parse", "main", "other", "here")
    killed(linked)
    linked.git("update-ref", "refs/heads/here", linked.git("commit-tree", "-m", "Since", "HEAD^{tree}").strip())

    done = linked.doit("work")

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert all(f"refs/heads/{name} (" in said for name in ("main", "other", "third")), said
    assert linked.git("rev-parse", "main", "other", "third") == before
    assert linked.git("log", "-1", "--format=%s", "here").strip() == "Since"
    assert project.git("status", "--porcelain") == ""


@pytest.mark.slow
def test_a_work_tree_that_is_taken_away_after_a_kill_costs_no_branch(linked, project, tmp_path):
    project.git("worktree", "add", "-q", "-b", "aside", str(tmp_path / "aside"))
    linked.root = project.root
    killed(linked)
    for name in ("linked", "aside"):
        project.git("worktree", "remove", "--force", str(tmp_path / name))

    done = project.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert {"main", "here", "aside", "other", "third", "001-x"} == set(
        project.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    )
