"""`.doflow/pipeline-tasks.md` of another run never reaches an agent: at the start, when a run goes on, in a prompt (R1)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import unguarded
from tests.support.project import Project

FLOW = """\
flow: small
params: {goal: {about: What to build, required: true}}
steps:
  tasks: {prompt: List the tasks., makes: tasks.md, check: {tasks: true}}
  implement: {kind: implement, phases: tasks.md, prompt: Do the phase.}
"""
FAILS = 'if phase == "2": stop(1)\nusual()'
FILE = ".doflow/pipeline-tasks.md"
STALE = "- [ ] Delete the customers of the other run\n"
MARK = "Delete the customers"


@pytest.fixture
def project(project: Project) -> Project:
    project.settings("retry: {enabled: false}\n")
    project.flow("small", FLOW)
    project.agent(FAILS)
    project.commit("A flow")
    return project


def listed(issue: str | None, title: str = "# Pipeline Tasks", context: bool = True) -> str:
    """A list of another hand; `issue` is what stands behind the colon, None = no such line."""
    lines = [title, "", "## Task Checklist", "", STALE]
    lines += ["## Context", "", "- Pipeline: standard", "- Branch: other"] if context else []
    return "\n".join(lines + ([f"- Issue:{issue}"] if issue is not None else []) + [""])


def half_done(project: Project, *issue: str) -> None:
    """A run that failed in its second phase."""
    assert project.doit("small", "--goal=Log in", *issue).returncode == 1
    assert project.calls() == ["tasks", "implement:1", "implement:2"]
    project.agent("usual()")


def warnings(project: Project) -> list[str]:
    return [
        entry["message"] for entry in project.events() if entry["event"] == "warning" and "stale" in entry["message"]
    ]


@pytest.mark.smoke
def test_r1_26_a_new_run_clears_the_list_writes_its_own_and_shows_it_to_its_phases(project: Project) -> None:
    (project.root / ".doflow").mkdir()
    project.write(FILE, listed(" #154"))

    half_done(project, "--issue=232")

    text = project.read(FILE)
    assert text.startswith(
        "# Pipeline Tasks — Log in\n\n## Task Checklist\n\n- [ ] [T001] Lay the ground in ground.py\n"
    )
    assert "\n## Context\n\n- Pipeline: small\n- Branch: 001-log-in\n- Issue: #232\n- Goal: " in text
    shown = project.prompts()[1]
    assert "## Input: .doflow/pipeline-tasks.md" in shown
    assert ("[T002] Build the house" in shown, MARK in shown, "- Issue:" in shown) == (True, False, False)
    assert project.git("log", "--all", "--format=", "--name-only").count("pipeline-tasks.md") == 0


@pytest.mark.parametrize("text", [listed(" #154"), listed(" #232"), listed(None), "rubbish \udcff\n", ""])
def test_r1_1_and_r1_2_a_new_run_removes_whatever_is_there(project: Project, text: str) -> None:
    project.agent("stop(1)")
    (project.root / ".doflow").mkdir()
    (project.root / FILE).write_bytes(text.encode("utf-8", "surrogateescape"))

    assert project.doit("small", "--goal=Log in", "--issue=232").returncode == 1

    assert not (project.root / FILE).exists()


@pytest.mark.smoke(" #154-#232-False")
@pytest.mark.parametrize(
    ("said", "issue", "kept"),
    [
        (" #232", "#232", True),
        (" #154", "#232", False),
        (" none", "", True),
        (None, "#232", False),
        ("", "#232", False),
        (" #232 ", "#232", True),
        (" 232", "#232", True),
        (" #232", "232", True),
        (" None", "", True),
        (" #154", "", False),
        (" none", "#232", False),
        (" #", "#232", False),
        (" #", "", False),
        (None, "", False),
        (" ABC-7", "abc-7", True),
    ],
)  # fmt: skip
def test_r1_7_to_r1_12_a_run_that_goes_on_keeps_its_own_list_only(
    project: Project, said: str | None, issue: str, kept: bool
) -> None:
    half_done(project, *([f"--issue={issue}"] if issue else []))
    project.write(FILE, listed(said))
    project.forget_calls()

    assert project.doit("small").returncode == 0

    assert (project.root / FILE).exists() is kept
    assert [MARK in prompt for prompt in project.prompts()] == [kept]
    if kept:
        assert (project.read(FILE), warnings(project)) == (listed(said), [])
    else:
        (told,) = warnings(project)
        assert (said or "").strip(" #") in told
        assert "Issue" in told or (issue or "none") in told


def test_r1_12_a_list_without_a_context_section_is_stale(project: Project) -> None:
    half_done(project, "--issue=232")
    project.write(FILE, listed(" #232", context=False))

    assert project.doit("small").returncode == 0

    assert ((project.root / FILE).exists(), len(warnings(project))) == (False, 1)


def test_r1_13_and_r1_21_no_list_or_an_empty_one_is_nothing_to_speak_of(project: Project) -> None:
    half_done(project, "--issue=232")
    (project.root / FILE).unlink()
    project.forget_calls()

    assert project.doit("small").returncode == 0

    assert (warnings(project), "pipeline-tasks" in project.prompts()[0]) == ([], False)


def test_r1_24_of_several_issue_lines_the_first_counts(project: Project) -> None:
    half_done(project, "--issue=232")
    project.write(FILE, listed(" #232") + "- Issue: #154\n")

    assert project.doit("small").returncode == 0

    assert (project.root / FILE).exists()


@pytest.mark.parametrize(("goal", "kept"), [("Log in", True), ("Something else", False)])
def test_without_an_issue_the_goal_in_the_title_tells_runs_apart(project: Project, goal: str, kept: bool) -> None:
    half_done(project)
    project.write(FILE, listed(" none", title=f"# Pipeline Tasks — {goal}"))
    project.forget_calls()

    assert project.doit("small").returncode == 0

    assert [(project.root / FILE).exists(), MARK in project.prompts()[0]] == [kept, kept]


def test_the_list_of_another_run_without_an_issue_is_told_by_its_goal(project: Project) -> None:
    half_done(project)
    mine = project.git("branch", "--show-current").strip()
    project.git("switch", "-q", "main")
    project.agent("if phase: stop(1)\nusual()")
    assert project.doit("small", "--goal=Log out").returncode == 1
    project.git("switch", "-q", mine)
    project.agent("usual()")

    assert project.doit("small").returncode == 0

    assert [entry["message"] for entry in project.events("001-log-in") if entry["event"] == "warning"] == [
        "removed stale .doflow/pipeline-tasks.md: it was made for another goal"
    ]


def test_r1_29_the_guard_at_the_start_is_enough_alone(project: Project) -> None:
    project.flow(
        "small", FLOW.replace("  tasks: {prompt: List the tasks., makes: tasks.md, check: {tasks: true}}\n", "")
    )
    project.agent("usual()")
    project.write("specs/001-x/tasks.md", "## Phase 1: One\n- [ ] [T001] Do it\n")
    project.commit("A list by hand")
    (project.root / ".doflow").mkdir()
    project.write(FILE, listed(" #154"))

    done = without(project, "revalidate,admitted", "small", "--goal=x", "--issue=232", "--feature-dir=specs/001-x")

    assert (done.returncode, done.stderr, project.calls()) == (0, "", ["implement:1"])
    assert [MARK in prompt for prompt in project.prompts()] == [False]


@pytest.mark.parametrize(
    ("guards", "shown"),
    [("clear,admitted", False), ("clear,revalidate", False), ("clear,revalidate,admitted", True)],
)
def test_r1_29_each_of_the_other_guards_is_enough_alone(project: Project, guards: str, shown: bool) -> None:
    half_done(project, "--issue=232")
    project.write(FILE, listed(" #154"))
    project.forget_calls()

    done = without(project, guards, "small")

    assert done.returncode == 0, done.stderr
    assert [MARK in prompt for prompt in project.prompts()] == [shown]


def without(project: Project, guards: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, str(Path(unguarded.__file__)), guards, *words),
        cwd=project.root, env=project.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.smoke
def test_an_issue_that_contradicts_the_runs_is_an_error_and_changes_nothing(project: Project) -> None:
    half_done(project, "--issue=#232")
    before = project.tree(), project.read(FILE)

    done = project.doit("small", "--run=1", "--issue=154")

    assert (done.returncode, (project.tree(), project.read(FILE)) == before) == (1, True)
    assert "run 001-log-in belongs to issue #232, not to 154" in done.stderr


@pytest.mark.parametrize("issue", ["232", " #232", "#232"])
def test_the_same_issue_in_another_dress_is_no_contradiction(project: Project, issue: str) -> None:
    half_done(project, "--issue=#232")

    assert project.doit("small", "--run=1", f"--issue={issue}").returncode == 0

    assert project.state()["issue"] == "#232"


def test_an_issue_without_any_word_is_refused(project: Project) -> None:
    done = project.doit("small", "--goal=x", "--issue=#")

    assert (done.returncode, project.runs()) == (1, [])
    assert "--issue '#' is not an issue" in done.stderr


def test_a_goal_that_contradicts_the_runs_is_an_error(project: Project) -> None:
    half_done(project)

    done = project.doit("small", "--run=1", "--goal=Log out")

    assert (done.returncode, len(project.calls())) == (1, 3)
    assert "run 001-log-in was started with a different goal: Log in" in done.stderr


def test_what_an_earlier_run_of_the_same_name_left_is_not_taken_for_the_new_ones(project: Project) -> None:
    left = project.root / ".doflow" / "runs" / "001-log-in"
    (left / "logs").mkdir(parents=True)
    (left / "pipeline-state.json").write_text('{"status": "completed", "flow": "small"}')
    (left / "window").write_bytes(b"of another day")
    (left / "logs" / "tasks.9.log").write_text("of another day")
    project.agent("stop(1)")

    assert project.doit("small", "--goal=Log in").returncode == 1

    assert project.state("001-log-in")["status"] == "failed"
    assert [(left / name).exists() for name in ("window", "logs/tasks.9.log")] == [False, False]
