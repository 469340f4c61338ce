"""Steps that run at the same time: what one of them has made, no other changes."""

from __future__ import annotations

import os
import signal

import pytest
from tests.support.project import Project, eventually
from tests.support.work_flow import flow


@pytest.mark.smoke
def test_steps_that_do_not_wait_for_each_other_run_side_by_side(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, after: []}
two: {prompt: Two., makes: two.md, after: []}
both: {prompt: Both., reads: [one.md, two.md], makes: both.md, after: [one, two]}
""",
    )
    project.agent("""
        if step != "both":
            (outside / step).touch()
            other = outside / {"one": "two", "two": "one"}[step]
            for _ in range(3000):
                if other.exists():
                    break
                time.sleep(0.02)
            else:
                stop(1)
        usual()
    """)

    done = project.doit("-n", "2", "work")

    assert done.returncode == 0, done.stdout
    assert (sorted(project.calls()[:2]), project.calls()[2:]) == (["one", "two"], ["both"])
    assert project.git("status", "--porcelain") == ""
    assert len(project.subjects()) == 5


def test_a_stray_file_of_steps_side_by_side_fails_them_all(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, after: []}
two: {prompt: Two., makes: two.md, after: []}
""",
    )
    project.agent("""
        (outside / step).touch()
        while not all((outside / name).exists() for name in ("one", "two")):
            time.sleep(0.02)
        usual()
        put("stray.txt", "x")
        time.sleep(0.3)
    """)

    done = project.doit("-n", "2", "--continue", "work")

    assert done.returncode == 1
    assert not (project.root / "stray.txt").exists()
    assert project.state()["completed"] == []


def test_a_step_that_writes_more_than_its_artifact_runs_alone(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, writes: ['/src/**'], after: []}
two: {prompt: Two., makes: two.md, after: []}
""",
    )
    project.agent("""
        busy = outside / "busy"
        if busy.exists():
            stop(1)
        busy.touch()
        time.sleep(0.3)
        busy.unlink()
        usual()
    """)

    done = project.doit("-n", "2", "work")

    assert done.returncode == 0, done.stdout


FLOW = """
    flow: work
    steps:
      a: {prompt: A, makes: a.md}
      b: {prompt: B, makes: b.md, after: []}
      end: {prompt: End, reads: [a.md, b.md], makes: end.md, after: [a, b]}
"""


WAIT = """
import time
def until(found):
    for _ in range(3000):
        if found():
            return
        time.sleep(0.02)
    stop(1)
def committed(path):
    import subprocess
    return subprocess.run(["git", "cat-file", "-e", "HEAD:" + path], capture_output=True).returncode == 0
def kept(words):
    return words in (root / ".doflow/runs/001-x/events.jsonl").read_text()
"""


OVER = (
    WAIT
    + """
usual()
if step == "a":
    until(lambda: committed("specs/001-x/b.md") and kept('"step_complete"'))
    put("specs/001-x/b.md", "a wrote b")
"""
)


@pytest.mark.smoke
def test_an_agent_that_changes_what_a_step_beside_it_has_made_is_refused_and_it_is_put_back(project: Project) -> None:
    project.flow("work", FLOW)
    project.agent(OVER)

    done = project.doit("-n", "2", "work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "a modified files outside its scope: specs/001-x/b.md" in done.stdout
    assert "is an artifact of b" in done.stdout and "end" not in project.calls()
    assert "What b.md says." in project.read("specs/001-x/b.md")
    assert project.git("status", "--porcelain", "specs").split() == ["??", "specs/001-x/a.md"]
    assert "specs/001-x/b.md" in project.doflow("quarantine", "list").stdout

    project.agent("usual()")
    again = project.doit("-n", "2", "work")

    assert again.returncode == 0 and project.git("status", "--porcelain", "specs") == ""
    assert "by hand" not in again.stdout and project.calls().count("b") == 1


def test_an_artifact_that_was_there_before_its_own_agent_began_is_not_its_work(project: Project) -> None:
    project.flow("work", FLOW)
    project.settings("retry: {max_retries: 1, backoff_seconds: 4}\n")
    project.agent(
        WAIT
        + """
if step == "a":
    until(lambda: kept('"retry"'))
    make("a wrote b", "b.md")
    until(lambda: (outside / "calls.log").read_text().split().count("b") == 2)
    usual()
elif attempt == 1:
    stop(1)
else:
    say("did nothing")
"""
    )
    project.commit("A flow")

    done = project.doit("-n", "2", "--continue", "work", "--goal=x")

    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "b.md: changed before it began by a step running in parallel with b (a); reverted" in said
    assert "modified files outside its scope: specs/001-x/b.md" in said and "b failed its checks" in said
    assert not (project.run_dir() / "b.md").exists() and project.state()["completed"] == []


def test_what_a_killed_agent_wrote_over_the_work_of_a_step_beside_it_is_put_back(project: Project) -> None:
    project.flow("work", FLOW)
    project.agent(OVER + "\n    (outside / 'forged').touch()\n    time.sleep(60)\n")
    run = project.start("doit", "-n", "2", "work", "--goal=x")
    assert eventually((project.outside / "forged").exists)

    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    project.agent("usual()")
    done = project.doit("work", timeout=90)

    assert done.returncode == 0, done.stdout
    assert "What b.md says." in project.read("specs/001-x/b.md")
    assert project.git("status", "--porcelain", "specs") == "" and project.calls().count("b") == 1
    assert "by hand" not in done.stdout
