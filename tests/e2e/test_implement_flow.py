"""`doit implement`: the task lists of other tools, phase by phase, in the folder where they are."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest
from tests.support.project import Project

SPECKIT = """# Tasks: Sign in

## Phase 1: Setup (Shared Infrastructure)

- [x] T001 Create the package in src/app.py

## Phase 2: User Story 1 - Sign in (Priority: P1)

- [ ] T002 [P] [US1] Add the form in src/form.py
- [ ] T003 [US1] Check the password in src/check.py (depends on T002)

**Checkpoint**: people can sign in

## Phase N: Polish

- [ ] T004 [P] Document it in docs/sign-in.md

## Dependencies & Execution Order

- Setup first
"""
OPENSPEC = "## 1. Ground\n\n- [ ] 1.1 Lay it\n- [ ] 1.2 Check it\n\n## 2. House\n\n- [ ] 2.1 Build it\n"
KIRO = """# Implementation Plan

- [ ] 1. Lay the ground
  - Use stone
  - _Requirements: 1.1_

- [ ] 2. Build the house
- [ ] 2.1 Raise the walls
  - _Requirements: 1.2_
- [ ]* 2.2 Write tests for the walls
"""
STORY = """# Story 1.2: Sign in

Status: ready-for-dev

## Acceptance Criteria

1. People can sign in

## Tasks / Subtasks

- [ ] Task 1: Add the form (AC: 1)
  - [ ] Subtask 1.1: The field
- [ ] Task 2: Check the password (AC: 1)
"""
#: writes one file per phase and ticks what it was given, by the text of the phase in its prompt
AGENT = """
import re
put(f"src/phase_{phase}.py", f"PHASE = {phase!r}\\n")
path = root / re.search(r"It is in `([^`]+)`", prompt)[1]
boxes = re.findall(r"^ *- \\[ \\]\\*? .*$", prompt.partition("## The phase to do now")[2], re.M)
text = path.read_bytes().decode()
for box in boxes:
    text = text.replace(box, box.replace("[ ]", "[x]", 1), 1)
path.write_bytes(text.encode())
say("done")
"""
LISTS = {
    "spec-kit": ("specs/003-sign-in/tasks.md", SPECKIT, ["2", "N"]),
    "openspec": ("openspec/changes/add-house/tasks.md", OPENSPEC, ["1", "2"]),
    "kiro": (".kiro/specs/house/tasks.md", KIRO, ["1", "2"]),
    "bmad": ("docs/stories/1.2.sign-in.md", STORY, ["1"]),
    "crlf": ("specs/004-crlf/tasks.md", OPENSPEC.replace("\n", "\r\n"), ["1", "2"]),
}


REVIEWER = """
if role == "persona":
    say("VERDICT: GO")
    raise SystemExit
"""


def acts(project: Project, script: str) -> None:
    """What the agent does, besides its reviews, which find nothing."""
    project.agent(REVIEWER + textwrap.dedent(script))


def coding(project: Project) -> list[str]:
    """The agent's calls without those of reviewers."""
    return [line for line in project.calls() if " persona " not in line]


def prepared(project: Project, path: str, text: str) -> Path:
    acts(project, AGENT)
    target = project.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode())
    (target.parent / "proposal.md").write_text("# Why\n\nBecause.\n")
    project.commit("A task list")
    return target


@pytest.mark.smoke("spec-kit", "kiro")
@pytest.mark.parametrize("style", LISTS)
def test_a_list_becomes_one_commit_per_open_phase(project: Project, style: str) -> None:
    path, text, phases = LISTS[style]
    target = prepared(project, path, text)
    before = {str(found) for found in target.parent.rglob("*")}

    done = project.doit("implement")

    assert done.returncode == 0, done.stdout + done.stderr
    assert coding(project) == [f"code:{phase}" for phase in phases]
    assert [(project.root / f"src/phase_{phase}.py").exists() for phase in phases] == [True] * len(phases)
    assert target.read_bytes().replace(b"[x]", b"[ ]") == text.encode().replace(b"[x]", b"[ ]"), "only ticks differ"
    assert b"[ ]" not in target.read_bytes().replace(b"[ ]*", b"")
    added = {Path(found).name for found in {str(found) for found in target.parent.rglob("*")} - before}
    assert added <= {"doflow.lock"}
    assert project.git("status", "--porcelain") == ""
    subjects = project.git("log", "--format=%s").splitlines()
    assert sum(subject.startswith("Phase ") for subject in subjects) == len(phases)
    assert len(project.calls()) == len(phases) + 3, "and a review"
    project.forget_calls()
    again = project.doit("implement")
    assert (again.returncode, coding(project)) == (0, [])
    assert "nothing to do" in again.stdout


@pytest.mark.smoke
def test_ticked_phases_are_taken_as_done_and_said(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    target = prepared(project, path, text)
    target.write_text(text.replace("[ ] 1.", "[x] 1."))  # not committed

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (0, ["code:2"]), done.stdout + done.stderr
    assert f"phase 1 is ticked in {path}: taken as done" in done.stdout
    assert project.git("status", "--porcelain") == ""


def test_redo_does_a_ticked_phase_all_the_same(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text.replace("[ ] 1.", "[x] 1."))

    assert project.doit("implement", "--redo=1").returncode == 0

    assert coding(project) == ["code:1", "code:2"]
    project.forget_calls()
    assert project.doit("implement", "--redo=2").returncode == 0
    assert coding(project) == ["code:2"]


def test_an_agent_that_ticks_another_phase_does_not_skip_it(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    acts(project, AGENT.replace("for box in boxes:", "text = text.replace('[ ]', '[x]')\nfor box in boxes:"))

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (0, ["code:1", "code:2"]), done.stdout + done.stderr


def test_several_unfinished_lists_are_named(project: Project) -> None:
    prepared(project, *LISTS["openspec"][:2])
    prepared(project, *LISTS["kiro"][:2])

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (1, [])
    assert "there are 2 unfinished task lists" in done.stdout + done.stderr
    assert "openspec/changes/add-house/tasks.md: 0 done, 3 open" in done.stdout + done.stderr
    assert project.doit("implement", "--tasks=.kiro/specs/house").returncode == 0


def test_without_a_list_the_error_says_where_it_looked(project: Project) -> None:
    done = project.doit("implement")

    assert (done.returncode, coding(project), project.runs()) == (1, [], [])
    assert "no unfinished task list was found (in specs/*, openspec/changes/*" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--tasks=../x.md", "is not inside the project"),
        ("--tasks=README.md", "task list not found: README.md"),
        ("--tasks=notes.md", "notes.md:1: not a task list: no box"),
        ("--bogus", "doit help implement lists the options"),
        ("--goal=x", "implement works on a task list and takes no goal"),
    ],
)
def test_what_is_not_a_list_is_refused(project: Project, given: str, told: str) -> None:
    project.write("notes.md", "# Notes\n")
    project.commit("Notes")

    done = project.doit("implement", given)

    assert (done.returncode, coding(project), project.runs()) == (1, [], [])
    assert told in done.stdout + done.stderr


LISTING = """
flow: listing
steps:
  tasks: {prompt: Write the tasks., makes: tasks.md}
"""


@pytest.mark.parametrize("given", ["--tasks=specs/001-x/tasks.md", "--tasks=specs/001-x", "--feature-dir=specs/001-x"])
def test_the_folder_of_a_flow_without_an_implement_step_is_refused(project: Project, given: str) -> None:
    project.flow("listing", LISTING)
    project.commit("A flow")
    assert project.doit("listing", "--goal=x").returncode == 0
    before = project.tree()
    project.forget_calls()

    done = project.doit("implement", given)

    assert (done.returncode, project.calls(), project.tree()) == (1, [], before)
    assert "specs/001-x belongs to run 001-x of the flow listing" in done.stderr
    assert "continue it: doit listing --run=001-x" in done.stderr


@pytest.mark.smoke("branch")
@pytest.mark.parametrize(
    "given",
    [[], ["--tasks=specs/001-x/tasks.md"], ["--tasks", "specs/001-x"], ["--feature-dir=./specs/001-x/"], ["--run=1"]],
    ids=["branch", "list", "folder", "feature-dir", "run"],
)
def test_a_list_of_another_flow_continues_the_implement_step_of_its_run(project: Project, given: list[str]) -> None:
    project.agent("say('[ERROR: no]') if phase == '2' else usual()")
    assert project.doit("tiny", "--goal=x").returncode == 1
    project.forget_calls()
    project.agent("usual()")

    done = project.doit("implement", *given)

    assert (done.returncode, project.calls()) == (0, ["implement:2"]), done.stdout + done.stderr
    assert "specs/001-x belongs to run 001-x of the flow tiny: continuing its step implement" in done.stderr
    assert (project.runs(), project.git("status", "--porcelain")) == (["001-x"], "")
    project.forget_calls()
    again = project.doit("implement", f"--tasks={project.root}/specs/001-x")
    assert (again.returncode, project.calls()) == (0, []), again.stdout + again.stderr
    forced = project.doflow("run", "implement", "--tasks", "specs/001-x", "--redo", "1")
    assert (forced.returncode, project.calls()) == (0, ["implement:1"]), forced.stdout + forced.stderr


def test_a_run_that_has_no_list_yet_does_not_hide_other_lists(project: Project) -> None:
    project.agent("say('[ERROR: no]')")
    assert project.doit("tiny", "--goal=x").returncode == 1
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)

    done = project.doit("implement")

    assert (done.returncode, coding(project)[-2:]) == (0, ["code:1", "code:2"]), done.stdout + done.stderr


def long_list(first: str = "one", second: str = "two") -> str:
    """A phase of 18 tasks in two parts, then a short one."""
    boxes = [f"- [ ] T{number:03} {first if number < 10 else second} {number}\n" for number in range(1, 19)]
    parts = f"### Models\n\n{''.join(boxes[:9])}\n### Services\n\n{''.join(boxes[9:])}"
    return f"# Tasks\n\n## Phase 1: Build\n\n{parts}\n## Phase 2: Polish\n\n- [ ] T019 docs\n"


@pytest.mark.smoke
def test_a_long_phase_is_worked_in_parts_with_a_commit_each(project: Project) -> None:
    target = prepared(project, "specs/005-long/tasks.md", long_list())
    names = ["code:1-part1", "code:1-part2", "code:2"]

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (0, names), done.stdout + done.stderr
    assert b"[ ]" not in target.read_bytes()
    subjects = [line for line in project.git("log", "--format=%s").splitlines() if line.startswith("Phase ")]
    assert subjects == ["Phase 2: Polish", "Phase 1: Build, part 2: Services", "Phase 1: Build, part 1: Models"]
    shown = project.doflow("status", "005-long").stdout
    assert all(name in shown for name in names), shown
    assert "T001" in project.prompts()[0] and "T010" not in project.prompts()[0].partition("phase to do now")[2]
    project.forget_calls()

    acts(project, AGENT.replace("{phase!r}", "{phase + ' again'!r}"))
    target.write_text(long_list(second="other"))
    assert "its section changed" in project.doflow("why", "code:1-part2").stdout
    again = project.doit("implement")

    assert (again.returncode, coding(project)) == (0, ["code:1-part2", "code:2"]), again.stdout + again.stderr
    project.forget_calls()
    assert project.doit("implement", "--redo=1").returncode == 0
    assert coding(project) == ["code:1-part1", "code:1-part2"]


def test_a_long_phase_continues_at_its_open_part(project: Project) -> None:
    prepared(project, "specs/005-long/tasks.md", long_list())
    acts(project, f"say('[ERROR: no]') if phase == '1-part2' else None\n{AGENT}")
    assert project.doit("implement").returncode == 1
    project.forget_calls()
    acts(project, AGENT)

    assert "code:1-part2" in project.doflow("plan").stdout
    assert project.doit("implement").returncode == 0
    assert coding(project) == ["code:1-part2", "code:2"]


def test_a_phase_that_was_done_whole_stays_whole(project: Project) -> None:
    prepared(project, "specs/005-long/tasks.md", long_list())
    project.settings("phases: {max_tasks: 100}\n")
    project.commit("Settings")
    assert project.doit("implement").returncode == 0
    assert coding(project) == ["code:1", "code:2"]
    project.forget_calls()
    project.settings()
    project.commit("Settings")

    assert (project.doit("implement").returncode, coding(project)) == (0, [])


def test_ticked_parts_of_a_long_phase_are_taken_as_done(project: Project) -> None:
    prepared(project, "specs/005-long/tasks.md", long_list().replace("[ ] T00", "[x] T00"))

    assert project.doit("implement").returncode == 0
    assert coding(project) == ["code:1-part2", "code:2"]


@pytest.mark.smoke
def test_one_task_alone_is_one_call_one_commit_and_one_tick(project: Project) -> None:
    path, text, _ = LISTS["spec-kit"]
    target = prepared(project, path, text)
    acts(project, 'import re\nput("src/check.py", "OK = True\\n")\nsay("done")')  # it forgets to tick

    done = project.doit("implement", "--task", "T003")

    assert (done.returncode, coding(project)) == (0, ["code:task-T003"]), done.stdout + done.stderr
    assert target.read_text() == text.replace("[ ] T003", "[x] T003")
    assert f"open in {path}: T002, T004" in done.stdout
    assert "T002" not in project.prompts()[0].partition("phase to do now")[2].replace("(depends on T002)", "")
    subjects = project.git("log", "--format=%s").splitlines()
    assert subjects[0] == "T003: Check the password in src/check.py (depends on T002)"
    assert project.git("status", "--porcelain") == ""
    project.forget_calls()
    assert (project.doit("implement", "--task=T003").returncode, coding(project)) == (0, []), "it is ticked"

    acts(project, AGENT)
    rest = project.doit("implement")

    assert (rest.returncode, coding(project)) == (0, ["code:2", "code:N"]), rest.stdout + rest.stderr
    given = next(prompt for prompt in project.prompts() if "T002" in prompt.partition("phase to do now")[2])
    assert "- [x] T003" in given and "- [ ] T003" not in given
    assert "[ ]" not in target.read_text()


def test_a_phase_whose_tasks_were_all_done_alone_is_done(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    acts(project, 'put(f"src/{phase}.py", "x = 1")')
    assert project.doit("implement", "--task=1.1").returncode == 0
    assert project.doflow("run", "implement", "--task", "1.2").returncode == 0
    project.forget_calls()

    acts(project, AGENT)
    assert (project.doit("implement").returncode, coding(project)) == (0, ["code:2"])


@pytest.mark.parametrize(("given", "told"), [("T999", "has no task T999"), ("1.1", "has 2 tasks 1.1 (lines 1, 2)")])
def test_a_task_that_is_not_one_of_the_list_is_refused(project: Project, given: str, told: str) -> None:
    prepared(project, "tasks.md", "- [ ] 1.1 a\n- [ ] 1.1 b\n")

    done = project.doit("implement", f"--task={given}")

    assert (done.returncode, coding(project), project.runs()) == (1, [], []), done.stdout + done.stderr
    assert told in done.stdout + done.stderr


def test_an_agent_that_does_nothing_has_not_done_its_task(project: Project) -> None:
    path, text, _ = LISTS["spec-kit"]
    target = prepared(project, path, text)
    acts(project, 'say("done")')

    assert project.doit("implement", "--task=T003").returncode == 2
    assert target.read_text() == text


@pytest.mark.smoke
def test_optional_tasks_are_given_and_needed_only_if_asked_for(project: Project) -> None:
    path, text, _ = LISTS["kiro"]
    target = prepared(project, path, text)

    assert project.doit("implement").returncode == 0
    assert not any("Write tests for the walls" in prompt for prompt in project.prompts())
    assert "- [ ]* 2.2" in target.read_text()
    project.forget_calls()
    assert (project.doit("implement").returncode, coding(project)) == (0, [])

    acts(project, AGENT.replace("{phase!r}", "{phase + ' again'!r}"))
    more = project.doit("implement", "--optional")

    assert (more.returncode, coding(project)) == (0, ["code:2"]), more.stdout + more.stderr
    assert "- [x]* 2.2" in target.read_text()
    project.forget_calls()
    assert (project.doit("implement", "--optional").returncode, coding(project)) == (0, [])


@pytest.mark.smoke
def test_the_test_command_is_the_check_of_each_phase_with_repair(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    project.settings("test_command: test -e good || { echo 1 test failed; exit 1; }\n")
    project.commit("Settings")
    acts(
        project, f'if role == "repair":\n    put("good", "")\n    say("fixed")\nelse:\n{textwrap.indent(AGENT, "    ")}'
    )

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (0, ["code:1", "code:1 repair", "code:2"]), done.stdout + done.stderr
    assert "1 test failed" in project.prompts()[1]


def test_a_phase_whose_tests_still_fail_after_two_repairs_is_not_done(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    project.settings("test_command: [test, -e, good]\n")
    project.commit("Settings")

    done = project.doit("implement")

    assert (done.returncode, len(coding(project))) == (1, 3), done.stdout + done.stderr
    assert "Phase 1" not in project.git("log", "--format=%s")


def test_why_lists_no_optional_input_that_does_not_exist(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    assert project.doit("implement").returncode == 0

    shown = project.doflow("why", "code:1").stdout

    assert "proposal.md" in shown and "missing" not in shown, shown
    assert "quickstart.md" not in shown


def test_a_review_leaves_no_file_in_the_folder_of_another_tool(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    target = prepared(project, path, text)
    project.agent(REVIEWER.replace("VERDICT: GO", "ISSUE: L | A typo | src/phase_1.py:1\\nVERDICT: GO") + AGENT)

    assert project.doit("implement").returncode == 0

    assert sorted(found.name for found in target.parent.iterdir()) == ["doflow.lock", "proposal.md", "tasks.md"]
    assert "A typo" in (project.root / ".doflow/runs/add-house/review-review.yaml").read_text()
    message = project.git("log", "-1", "--format=%B", "--grep=^review: GO")
    assert "A typo" in message and "Doflow-Step: review" in message
    assert project.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_an_archived_folder_is_the_same_run_and_stays_finished(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    prepared(project, path, text)
    assert project.doit("implement").returncode == 0
    project.forget_calls()
    project.git("mv", "-k", "openspec/changes/add-house", "openspec/changes/gone")
    (project.root / "openspec/changes/archive").mkdir()
    project.git("mv", "openspec/changes/gone", "openspec/changes/archive/2026-01-02-add-house")
    project.commit("Archive")

    done = project.doit("implement")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr
    assert "nothing to do" in done.stdout
    shown = project.doflow("status").stdout
    assert shown.count("add-house  ") >= 1 and "2026-01-02" not in shown and "changed since" not in shown, shown
    named = project.doit("implement", "--tasks=openspec/changes/archive/2026-01-02-add-house")
    assert (named.returncode, project.calls()) == (0, []), named.stdout + named.stderr
    assert project.git("status", "--porcelain") == ""


def test_a_copy_of_a_folder_is_another_run(project: Project) -> None:
    path, text, _ = LISTS["openspec"]
    target = prepared(project, path, text)
    assert project.doit("implement").returncode == 0
    shutil.copytree(target.parent, target.parent.parent / "add-barn")

    runs = json.loads(project.doflow("status", "--json").stdout)["runs"]

    assert sorted(run["run"] for run in runs) == ["add-barn", "add-house"]
