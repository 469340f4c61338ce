"""Work trees that share one git folder: an agent's deeds are undone, what goes on in another work tree is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.project import Project

FLOW = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"


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
