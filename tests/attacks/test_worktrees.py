"""Work trees that share one git folder: an agent's deeds are undone, what goes on in another work tree is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.crash import killed_at_work
from tests.support.project import Project, eventually

FLOW = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"
#: deletes a branch that is checked out elsewhere and one that is not, moves another, and runs until it is killed
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
    """A run in a linked working tree; the main one is on `main`, and a branch `other` is not checked out."""
    project.flow("work", FLOW)
    project.commit("Ground")
    project.git("branch", "other")
    project.git("worktree", "add", "-q", "-b", "here", str(tmp_path / "linked"))
    there = Project.__new__(Project)
    there.__dict__.update(project.__dict__)
    there.root = tmp_path / "linked"
    return there


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
    assert "write modified files outside its scope: .git/hooks/post-commit" in done.stdout
    assert "refs/heads/001-x" in done.stdout and "refs/heads/other" in done.stdout
    assert project.git("rev-parse", "other", "main") == before
    assert linked.subjects() == ["Begin", "Ground"]
    assert not (project.root / ".git/hooks/post-commit").exists()


@pytest.mark.smoke
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
    assert "changed git state" not in done.stdout


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


@pytest.mark.smoke
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


#: the agent of the first run runs until it is told to end
PATIENT = """
import time
(outside / f"at work {nth}").touch()
while not nth and not (outside / "go on").exists():
    time.sleep(0.02)
usual()
"""


def test_a_run_in_a_work_tree_that_is_added_meanwhile_stays_whole(project, tmp_path):
    project.flow("work", FLOW)
    project.commit("Ground")
    project.agent(PATIENT)
    first = project.start("doit", "work", "--goal=ours")
    assert eventually((project.outside / "at work 0").exists)
    beside = tmp_path / "beside"

    project.git("worktree", "add", "-q", "-b", "beside", str(beside), "main")
    second = project.doit("work", "--goal=theirs", cwd=beside)
    project.git("tag", "theirs", cwd=beside)
    project.git("pack-refs", "--all", cwd=beside)
    (project.outside / "go on").touch()
    said = "".join(first.communicate(timeout=60))

    assert (second.returncode, first.returncode) == (0, 0), said
    assert "changed git state" not in said
    assert project.git("log", "-1", "--format=%s", cwd=beside) == "write: out.md\n"
    assert project.git("status", "--porcelain", cwd=beside) == ""
    found = set(project.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags").split())
    assert found == {"main", "beside", "001-ours", "002-theirs", "theirs"}
    assert project.subjects() == ["Begin", "Ground", "write: out.md"]


#: each of these is tried behind a work tree of the agent's own
BEHIND = {
    "its own branch is moved": 'git("commit", "-q", "--allow-empty", "-m", "mine")',
    "its own branch is moved and packed": 'git("commit", "-q", "--allow-empty", "-m", "mine"); git("pack-refs", "--all")',
    "its own branch is moved from the work tree": (
        'git("worktree", "add", "-q", "-f", str(outside / "again"), "001-ours");'
        'git("-C", str(outside / "again"), "commit", "-q", "--allow-empty", "-m", "mine")'
    ),
    "its own branch is another's name": 'git("symbolic-ref", "refs/heads/001-ours", "refs/heads/main")',
    "its own branch is deleted": 'git("update-ref", "-d", "refs/heads/001-ours")',
    "its own branch is renamed below itself": 'git("branch", "-m", "aside"); git("branch", "-m", "001-ours/below")',
    "another branch is checked out": 'git("switch", "-q", "-c", "evil")',
    "a branch is deleted": 'git("branch", "-D", "other")',
    "a branch is another's name": 'git("symbolic-ref", "refs/heads/other", "refs/heads/main")',
    "the index is changed": 'git("rm", "-q", "--cached", "dodo.py")',
}


@pytest.fixture
def ours(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("Ground")
    project.git("branch", "other")
    return project


def behind(ours: Project, deed: str) -> None:
    """The agent makes a work tree first, and then does this."""
    ours.agent(f"""
import subprocess
git = lambda *args: subprocess.run(["git", *args], check=True, capture_output=True)
git("worktree", "add", "-q", "-b", "hidden", str(outside / "hidden"), "main")
{deed}
usual()
""")


@pytest.mark.parametrize("deed", BEHIND)
def test_a_work_tree_of_the_agents_own_hides_nothing(ours, deed):
    before = ours.git("rev-parse", "main", "other")
    behind(ours, BEHIND[deed])

    done = ours.doit("work", "--goal=ours")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed git state" in done.stdout
    assert ours.git("symbolic-ref", "HEAD").strip() == "refs/heads/001-ours"
    assert ours.subjects() == ["Begin", "Ground", "write: out.md"]
    assert ours.git("rev-parse", "main", "other") == before
    assert ours.git("status", "--porcelain") == ""
    assert ours.git("fsck", "--no-dangling") == ""


@pytest.mark.parametrize(
    ("deed", "named"),
    [
        ('git("config", "core.pager", "evil")', ".git/config"),
        ('pathlib.Path(".git/hooks/post-commit").write_text("#!/bin/sh")', ".git/hooks/post-commit"),
        ('git("update-ref", "-d", "refs/doflow/wip/001-ours/write")', "refs/doflow/wip/001-ours/write"),
        ('pathlib.Path(".doflow/runs/001-ours/events.jsonl").unlink()', ".doflow/runs/001-ours/events.jsonl"),
    ],
)
def test_behind_a_work_tree_of_its_own_an_agent_still_fails_for_what_steers(ours, deed, named):
    behind(ours, deed)

    done = ours.doit("work", "--goal=ours")

    assert done.returncode == 1
    assert f"write modified files outside its scope: {named}" in done.stdout
    assert ours.git("config", "--get-all", "core.pager", check=False) == ""
    assert not (ours.root / ".git/hooks/post-commit").exists()
    assert ours.git("rev-parse", "refs/doflow/wip/001-ours/write^") == ours.git("rev-parse", "main")
    assert ours.doflow("verify").returncode == 0


def test_after_a_kill_a_work_tree_that_was_added_meanwhile_keeps_its_branch(ours):
    killed_at_work(
        ours,
        """
        import subprocess, time
        if not nth:
            git = lambda *args: subprocess.run(["git", *args], check=True, capture_output=True)
            git("worktree", "add", "-q", "-b", "beside", str(outside / "beside"), "main")
            git("-C", str(outside / "beside"), "commit", "-q", "--allow-empty", "-m", "Theirs")
            git("branch", "-D", "other")
            git("commit", "-q", "--allow-empty", "-m", "mine")
            (outside / "ready").touch()
            time.sleep(60)
        usual()
        """,
    )

    done = ours.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert ours.git("log", "-1", "--format=%s", "beside") == "Theirs\n"
    assert ours.git("rev-parse", "other") == ours.git("rev-parse", "main")
    assert ours.subjects() == ["Begin", "Ground", "write: out.md"]
