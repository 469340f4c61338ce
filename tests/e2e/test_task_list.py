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


@pytest.mark.smoke("makes its own phase easier")
@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS.keys())
def test_the_words_of_the_list_stay_and_every_phase_is_done(work: Project, text: str) -> None:
    acts(work, f"path.write_text({text!r})")

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed the text of specs/001-x/tasks.md, where it may only tick boxes" in done.stdout
    assert work.calls() == ["tasks", "build:1", "build:2"]
    assert (work.run_dir() / "tasks.md").read_text() == (TICKED if "[x] [T001] a" in text else LIST)
    assert work.git("status", "--porcelain") == ""
    kept = work.doflow("quarantine", "list").stdout
    assert "specs/001-x/tasks.md" in kept and "changed the text of its task list" in kept
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


def edited(project: Project, text: str, flow: str = FLOW) -> Project:
    """A run that is done, and then a list as a person left it."""
    project.flow("work", flow)
    project.commit("A flow")
    acts(project, "pass")
    assert project.doit("work", "--goal=x").returncode == 0
    project.forget_calls()
    (project.run_dir() / "tasks.md").write_text(text)
    return project


CHECKED = FLOW.replace("makes: tasks.md}", "makes: tasks.md, check: {tasks: strict}}")
TWICE = LIST.replace("Phase 2", "Phase 1")
FAULTS = {
    "a number twice": (TWICE, ":6: Phase 1 is a duplicate"),
    "a task without brackets": (LIST.replace("[T002] b", "T002 b"), ":7: a task is `- [ ] [T001] text`"),
    "the wrong order": (LIST.replace("Phase 1", "Phase 3"), ":6: Phase 2 comes after Phase 3"),
    "nothing": (" \n", " is empty"),
}


@pytest.mark.parametrize(("text", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_list_that_a_person_broke_is_held_to_the_contract_of_its_maker(project, text, words):
    work = edited(project, text, CHECKED)

    done = work.doit("work")

    assert (done.returncode, work.calls(), work.state()["status"]) == (2, [], "paused"), done.stdout + done.stderr
    assert f"specs/001-x/tasks.md{words}" in done.stdout
    assert "fix specs/001-x/tasks.md, then: doit work" in done.stdout
    assert f"specs/001-x/tasks.md{words}" in work.doflow("plan").stdout
    assert f"specs/001-x/tasks.md{words}" in work.doflow("status").stdout
    for part in ("build", "build:1", "build:2"):
        why = work.doflow("why", part).stdout
        assert f"specs/001-x/tasks.md{words}" in why and "next: fix specs/001-x/tasks.md" in why

    (work.run_dir() / "tasks.md").write_text(LIST)
    assert (work.doit("work").returncode, work.calls(), work.state()["status"]) == (0, [], "completed")


def test_two_phases_with_one_number_are_two_phases_without_any_check(project):
    work = edited(project, TWICE)

    assert work.doit("list", "--all").returncode == 0
    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["build:1-2"]), "phase 1 is as it was"


def test_an_empty_list_calls_no_agent(project):
    work = edited(project, "\n\n")

    done = work.doit("work")

    assert (done.returncode, work.calls(), work.state()["status"]) == (1, [], "failed")
    assert "build has nothing to do: specs/001-x/tasks.md is empty" in done.stdout
    assert "doit work --force=tasks   regenerates it" in done.stdout
    assert (work.doit("work", "--force=tasks").returncode, work.calls()) == (0, ["tasks"])


def test_a_list_of_words_without_phases_is_one_call_and_said_aloud(project):
    work = edited(project, "Build a house.\n")

    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["build:all"]), done.stdout
    assert "has no `## Phase N: title`: implementing all of it in one call" in done.stdout


ANY = FLOW.replace("makes: tasks.md}", "makes: tasks.md, check: {tasks: true}}")
SPECKIT = "# Tasks\n\n## Phase 1: First\n\n- [ ] T001 a\n\n## Phase 2: Second\n\n- [ ] T002 [P] b\n"


@pytest.mark.parametrize(("flow", "code"), [(ANY, 0), (CHECKED, 1)], ids=["true", "strict"])
def test_true_takes_a_list_of_any_format_and_strict_only_ours(project: Project, flow: str, code: int) -> None:
    project.flow("work", flow)
    project.commit("A flow")
    project.agent(f"make({SPECKIT!r}) if step == 'tasks' else put(f'src/{{phase}}.py', 'x = 1')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (code, ["tasks"] if code else ["tasks", "build:1", "build:2"]), (
        done.stdout
    )
    assert ("a task is `- [ ] [T001] text`" in done.stdout) == bool(code)


def test_true_refuses_what_is_not_a_list(project: Project) -> None:
    project.flow("work", ANY)
    project.commit("A flow")
    project.agent("make('# Tasks\\n\\nNothing yet.\\n')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["tasks"])
    assert "specs/001-x/tasks.md:1: no box: a task is `- [ ] text`" in done.stdout


@pytest.mark.smoke
def test_a_list_adopted_anyway_is_worked_as_it_is(project: Project) -> None:
    work = edited(project, SPECKIT, CHECKED)
    paused = work.doit("work")
    assert (paused.returncode, "doflow adopt tasks --anyway" in paused.stdout) == (2, True), paused.stdout

    assert work.doflow("adopt", "tasks", "--anyway").returncode == 0
    work.agent("""
        put(f"src/{phase}.py", "x = 2")
        path = run_dir / "tasks.md"
        path.write_text(path.read_text().replace("[ ]", "[x]", 1))
    """)
    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["build:1", "build:2"]), done.stdout + done.stderr
    assert work.doit("work").returncode == 0
    (work.run_dir() / "tasks.md").write_text(SPECKIT.replace("] b", "] c"))
    again = work.doit("work")
    assert (again.returncode, "fails the checks of tasks" in again.stdout) == (2, True), "an edit is checked again"


def test_a_flow_that_asks_for_the_strict_form_later_can_take_the_list_anyway(project: Project) -> None:
    project.flow("work", ANY)
    project.commit("A flow")
    project.agent(f"make({SPECKIT!r}) if step == 'tasks' else say('[ERROR: no]')")
    assert project.doit("work", "--goal=x").returncode == 1
    project.flow("work", CHECKED)
    project.commit("Ask for the strict form")
    assert project.doit("work").returncode == 2

    adopted = project.doflow("adopt", "tasks", "--anyway")

    assert adopted.returncode == 0, adopted.stdout + adopted.stderr
    project.agent("put(f'src/{phase}.py', 'x = 1')")
    assert project.doit("work").returncode == 0


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [(SPECKIT, 0, "ok  notes.md  (task list: spec-kit, 2 phases, 2 tasks)"), ("# Notes\n", 1, "notes.md:1:1: no box")],
)
def test_validate_knows_a_task_list(project: Project, text: str, code: int, told: str) -> None:
    project.write("notes.md", text)

    done = project.doflow("validate", "notes.md")

    assert (done.returncode, told in done.stdout) == (code, True), done.stdout + done.stderr
    assert ".yaml" not in done.stdout + done.stderr
