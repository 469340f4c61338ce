"""The agent of a phase may tick boxes in the task list; what it makes of the words does not count."""

from __future__ import annotations

import pytest
from tests.support.project import Project

LIST = "# Tasks\n\n## Phase 1: First\n- [ ] [T001] a\n\n## Phase 2: Second\n- [ ] [T002] b\n"
FLOW = """
    flow: work
    steps:
      tasks: {prompt: Write., makes: tasks.md}
      build: {kind: implement, phases: tasks.md, prompt: Build.}
"""
TICKED = LIST.replace("[ ] [T001]", "[x] [T001]")
WAYS = {
    "takes a phase out": LIST.split("## Phase 2")[0],
    "makes the next phase easier": TICKED.replace("[T002] b", "[T002] nothing"),
    "makes its own phase easier": TICKED.replace("[T001] a", "[T001] less"),
    "adds a phase": TICKED + "\n## Phase 3: More\n- [ ] [T003] c\n",
    "writes notes": TICKED + "\nDone well.\n",
    "empties it": "",
}


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def acts(project: Project, phase_1: str) -> None:
    project.agent(f"""
        path = run_dir / "tasks.md"
        if step == "tasks":
            path.write_text({LIST!r})
        else:
            put(f"src/{{phase}}.py", "x = 1")
            if phase == "1":
                {phase_1}
    """)


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS.keys())
def test_the_words_of_the_list_stay_and_every_phase_is_done(work: Project, text: str) -> None:
    acts(work, f"path.write_text({text!r})")

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed the words of specs/001-x/tasks.md, where it may tick boxes only" in done.stdout
    assert work.calls() == ["tasks", "build:1", "build:2"]
    assert (work.run_dir() / "tasks.md").read_text() == (TICKED if "[x] [T001] a" in text else LIST)
    assert work.git("status", "--porcelain") == ""
    kept = work.doflow("quarantine", "list").stdout
    assert "specs/001-x/tasks.md" in kept and "changed the words of its task list" in kept
    work.forget_calls()
    assert (work.doit("work").returncode, work.calls()) == (0, [])


@pytest.mark.parametrize("deed", ["path.unlink()", "path.unlink(); path.symlink_to('/etc/hostname')"])
def test_a_list_that_is_taken_away_is_there_again(work: Project, deed: str) -> None:
    acts(work, deed)

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (0, ["tasks", "build:1", "build:2"]), done.stdout + done.stderr
    assert (work.run_dir() / "tasks.md").read_text() == LIST


def test_ticked_boxes_are_no_news(work: Project) -> None:
    acts(work, f"path.write_text({TICKED!r})")

    done = work.doit("work", "--goal=x")

    assert (done.returncode, "words" in done.stdout) == (0, False), done.stdout
    assert (work.run_dir() / "tasks.md").read_text() == TICKED
    assert "tasks.md" in work.git("show", "--stat", "--format=", "HEAD~1")


def test_a_repair_may_not_change_the_words_either(work: Project) -> None:
    work.flow("work", FLOW.replace("prompt: Build.", "prompt: Build., repair: 1, check: {run: [test, -e, src/good]}"))
    work.commit("A check")
    easier = TICKED.replace("[T002] b", "[T002] nothing")
    acts(work, f"put('src/good', '') if role == 'repair' else None; path.write_text({easier!r})")

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (work.run_dir() / "tasks.md").read_text() == TICKED
    assert work.git("status", "--porcelain") == ""
