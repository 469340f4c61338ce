"""doflow is killed (-9) while an agent writes where it may not: the next start puts that back and names it, and keeps what a
person wrote since."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress

import pytest
from tests.support.crash import alive, killed_at_work, none_left
from tests.support.project import Project, eventually

FLOW = "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.md}\n"
VANDAL = """
import subprocess, time
if not nth:
    put("src/app.py", "evil")
    put("new.py", "evil")
    os.unlink("docs.md")
    subprocess.run(["git", "commit", "-q", "-a", "-m", "mine"], check=True)
    (root / ".git/hooks/post-commit").write_text(f"#!/bin/sh\\ntouch {outside}/canary\\n")
    (root / ".git/hooks/post-commit").chmod(0o755)
    subprocess.run(["git", "config", "filter.evil.clean", "touch canary; cat"], check=True)
    (outside / "ready").touch()
    time.sleep(60)
usual()
"""


@pytest.fixture
def killed(project: Project) -> Project:
    """A project whose agent has done its worst, and whose doflow was killed while it did."""
    for path in ("src/app.py", "docs.md", "notes.txt"):
        project.write(path, "as it was\n")
    project.flow("work", FLOW)
    project.commit("Ground")
    project.write("notes.txt", "edited by hand\n")
    killed_at_work(project, VANDAL)
    return project


@pytest.mark.smoke
def test_what_a_killed_agent_wrote_where_it_may_not_is_put_back_and_named(killed):
    done = killed.doit("work")

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert {"src/app.py", "new.py", "docs.md", ".git/hooks/post-commit", ".git/config"} <= named(said)
    assert "a killed step had changed git state; reverted: refs/heads/001-x" in said
    assert [killed.read(path) for path in ("src/app.py", "docs.md", "notes.txt")] == [
        *("as it was\n", "as it was\n"), "edited by hand\n",
    ]  # fmt: skip
    assert not (killed.root / "new.py").exists()
    assert not (killed.root / ".git/hooks/post-commit").exists()
    assert "evil" not in killed.read(".git/config")
    assert killed.subjects() == ["Begin", "Ground", "write: out.md"]
    assert killed.git("status", "--porcelain") == " M notes.txt\n"
    assert not (killed.outside / "canary").exists()


@pytest.mark.smoke
def test_what_a_person_wrote_after_the_kill_stays(killed):
    killed.write("docs.md", "written anew by hand\n")
    killed.write("mine.txt", "new\n")

    done = killed.doit("work")

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "changed after the step was killed, kept as your edits: docs.md, mine.txt" in said
    assert killed.read("docs.md") == "written anew by hand\n"
    assert killed.read("mine.txt") == "new\n"
    assert killed.read("src/app.py") == "as it was\n"


def test_the_log_of_a_killed_step_says_why_it_ends(killed):
    assert "stopped, because doflow itself ended" in killed.doflow("logs", "write", "--err").stdout


def test_a_forged_lock_of_a_killed_run_is_not_believed(project):
    project.flow("work", FLOW + "  last: {prompt: The last, makes: last.md}\n")
    project.commit("Ground")
    project.agent("""
        import time
        if not nth and step == "write":
            lock = run_dir / "doflow.lock"
            text = lock.read_text()
            (outside / "lock").write_text(text)
            lock.write_text(text.replace("steps: {}", "steps:\\n  last: {key: forged, at: now}"))
            (outside / "ready").touch()
            time.sleep(60)
        usual()
        """)
    run = project.start("doit", "work", "--goal=x")
    assert eventually((project.outside / "ready").exists)
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert none_left(project.home) == {}

    done = project.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert project.calls() == ["write", "write", "last"]
    assert "forged" not in (project.run_dir() / "doflow.lock").read_text()


def named(said: str) -> set[str]:
    line = next(line for line in said.splitlines() if "left by a killed step, moved to quarantine: " in line)
    return set(line.partition("moved to quarantine: ")[2].split(", "))


SURVIVOR = """
import time
(outside / f"pid.{nth}").write_text(str(os.getpid()))
while not nth:
    put("src/app.py", "evil")
    time.sleep(0.01)
usual()
"""


def test_an_agent_that_outlives_doflow_and_its_supervisor_is_killed_before_another_one_starts(project):
    """As after `pkill -9 python`, with an agent that is no Python."""
    project.write("src/app.py", "as it was\n")
    project.flow("work", FLOW)
    project.commit("Ground")
    project.agent(SURVIVOR)
    run = project.start("doit", "work", "--goal=x")
    pid = project.outside / "pid.0"
    assert eventually(lambda: pid.exists() and pid.read_text() != "" and project.read("src/app.py") == "evil")
    agent = int(pid.read_text())
    os.kill(run.pid, signal.SIGSTOP)  # so that neither sees the other die
    assert eventually(lambda: shot_but(project, agent))
    run.wait(60)
    assert list(alive(project.home)) == [agent]

    done = project.doit("work")
    with suppress(ProcessLookupError):
        os.kill(agent, signal.SIGKILL)  # if it should be alive: it would be for ever

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"killed 1 process left over from an interrupted run: {agent}" in done.stdout + done.stderr
    assert none_left(project.home) == {}
    assert project.read("src/app.py") == "as it was\n"
    assert project.calls() == ["write", "write"]


def shot_but(project: Project, agent: int) -> bool:
    """Whoever is there beside the agent is killed; True when no one is, for one that is killed is not gone at once."""
    others = alive(project.home).keys() - {agent}
    for other in others:
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    return not others


PAGES = """
    flow: pages
    steps:
      page: {prompt: "Write {item}.", foreach: [c, a, b], makes: "pages/{item}.md"}
      note: {prompt: Write a note., makes: note.md, after: []}
"""
SOME_WAIT = """
import time
while step == "page:c" and not (outside / "go").exists():
    time.sleep(0.01)
usual()
"""


def told(project: Project) -> list[dict]:
    return project.events() if project.runs() and any(project.root.glob(".doflow/runs/*/events.jsonl")) else []


def test_what_was_done_beside_a_killed_step_stays_done(project):
    """Under `doit -n 2` some steps are done and committed while others, started with them, still work."""
    project.flow("pages", PAGES)
    project.agent(SOME_WAIT)
    project.commit("Ground")
    run = project.start("doit", "-n", "2", "pages", "--goal=x")
    assert eventually(lambda: sum(entry["event"] == "step_complete" for entry in told(project)) >= 3)
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert none_left(project.home) == {}
    (project.outside / "go").touch()

    done = project.doit("-n", "2", "pages")

    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(project.calls()) == {"note": 1, "page:a": 1, "page:b": 1, "page:c": 2}
    made = sorted(subject for subject in project.subjects() if subject.endswith(".md"))
    assert made == ["note: note.md", "page:a: pages/a.md", "page:b: pages/b.md", "page:c: pages/c.md"]
