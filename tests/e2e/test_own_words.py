"""doflow's own output may go to a file of the project: it is nobody's stray write."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.crash import none_left
from tests.support.project import PROGRAMS, Project, eventually

WORK = """\
flow: work
params: {goal: {about: what to build}}
steps:
  plan: {prompt: Plan it., makes: plan.md}
  tasks: {prompt: List the tasks., makes: tasks.md}
  implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""
WAYS = {
    "sent to a file": "{doit} work --goal=x > run.log 2>&1",
    "a file that was there": "echo old > run.log; {doit} work --goal=x >> run.log 2>&1",
    "behind tee": "set -o pipefail; {doit} work --goal=x 2>&1 | tee run.log > /dev/null",
    "of the shell": "exec > run.log 2>&1; {doit} work --goal=x | cat",
}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others' descriptors are seen in /proc alone")


def shell(project: Project, line: str) -> int:
    words = line.format(doit=PROGRAMS / "doit")
    done = subprocess.run(["bash", "-c", words], cwd=project.root, env=project.env, timeout=90, check=False)
    return done.returncode


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", WORK)
    project.commit()
    return project


@pytest.mark.smoke("a file that was there")
@pytest.mark.parametrize("way", [pytest.param(way, marks=linux if way != "sent to a file" else ()) for way in WAYS])
def test_a_log_in_the_project_that_doflow_writes_itself_is_not_blamed_on_an_agent(way: str, work: Project) -> None:
    code = shell(work, WAYS[way])

    text = work.read("run.log")
    assert (code, work.calls()) == (0, ["plan", "tasks", "implement:1", "implement:2"]), text
    assert "done: 001-x (work)" in text
    assert "run.log" not in work.git("ls-tree", "-r", "--name-only", "HEAD")
    assert not (work.root / ".doflow" / "quarantine").exists()


def test_an_agent_that_writes_beside_that_log_is_refused_all_the_same(work: Project) -> None:
    work.agent("usual()\nif step == 'plan': put('other.log', 'mine')")

    code = shell(work, WAYS["sent to a file"])

    assert code == 1
    assert "modified files outside its scope: other.log" in work.read("run.log")
    assert not (work.root / "other.log").exists()


@pytest.mark.smoke
def test_a_protected_file_is_put_back_also_if_it_is_the_log(work: Project) -> None:
    work.write("kept.log", "as it was\n")
    work.settings("protect: [kept.log]\n")
    work.commit()
    work.agent("put('kept.log', 'mine\\n'); usual()")

    code = shell(work, "{doit} work --goal=x >> kept.log 2>&1")

    assert code == 1
    assert work.read("kept.log").startswith("as it was\n")
    assert "mine" not in work.read("kept.log")


def test_the_log_of_a_killed_run_stays_where_it_is(work: Project, tmp_path: Path) -> None:
    work.agent("(outside / 'ready').write_text('x'); time.sleep(60)")
    with open(work.root / "run.log", "w") as log:
        run = subprocess.Popen([PROGRAMS / "doit", "work", "--goal=x"], cwd=work.root, env=work.env, stdout=log)
    assert eventually((work.outside / "ready").exists)
    run.send_signal(signal.SIGKILL)
    run.wait(20)
    assert none_left(work.home) == {}
    work.agent("usual()")

    done = work.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert work.read("run.log").startswith("run 001-x on branch")
    assert "run.log" not in done.stdout + done.stderr
