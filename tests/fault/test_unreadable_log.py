"""An attempt that ends by an error of the machine (its log cannot be read): the next command puts back what it left."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      a: {prompt: Write, makes: a.md, after: []}
      b: {prompt: Write, makes: b.md, after: []}
"""
# with `break` beside the project, the log of step a becomes a folder while its agent works
BREAKS = """
    import time
    state = root / ".doflow/runs" / known["DOFLOW_RUN"]
    if step == "a" and (outside / "break").exists():
        while (outside / "both").exists() and "b" not in (outside / "calls.log").read_text().split():
            time.sleep(0.02)
        make("half of it")
        if not (outside / "both").exists():
            put("stray.txt", "left behind")
        log = state / "logs/a.1.log"
        log.unlink()
        log.mkdir()
    else:
        while (outside / "both").exists() and '"event":"error"' not in (state / "events.jsonl").read_text():
            time.sleep(0.02)
        usual()
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    project.agent(BREAKS)
    (project.outside / "break").touch()
    return project


def mend(work: Project) -> None:
    for name in ("break", "both"):
        (work.outside / name).unlink(missing_ok=True)
    log = work.root / ".doflow/runs/001-x/logs/a.1.log"
    if log.is_dir():
        log.rmdir()


def made_good(work: Project, left: str) -> None:
    again = work.doit("work")

    assert again.returncode == 0, again.stdout + again.stderr
    assert f"left by a killed step, moved to quarantine: {left}\n" in again.stdout
    assert not (work.root / "stray.txt").exists()
    assert "half" not in (work.run_dir() / "a.md").read_text()
    assert work.git("status", "--porcelain") == ""


def test_an_attempt_that_breaks_off_is_undone_by_the_next_command(work):
    first = work.doit("work:a", "--goal=x")

    assert first.returncode == 1, first.stdout
    assert "Traceback" not in first.stderr
    mend(work)
    made_good(work, "specs/001-x/a.md, stray.txt")
    assert work.calls() == ["a", "a", "b"]


def test_what_broke_off_is_undone_also_if_the_step_beside_it_ended_well(work):
    (work.outside / "both").touch()

    first = work.doit("-n", "2", "work", "--goal=x")

    assert (first.returncode, sorted(work.calls())) == (1, ["a", "b"]), first.stdout
    assert "b: b.md" in work.subjects()
    mend(work)
    made_good(work, "specs/001-x/a.md")
    assert work.calls()[2:] == ["a"]
