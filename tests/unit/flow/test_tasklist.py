"""The task list: what is read of it, and what is said about one that is not as it should be."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, strategies as st
from tests.support import checkout

from doflow.flow import markdown, tasklist
from doflow.flow.tasklist import Phase, Task, TaskList
from doflow.util.errors import Problem

GOOD = """\
# Tasks: Links

Some words first: - [ ] is a box.

## Phase 1: Ground
- [ ] [T001] Make `links.py`
  files: links.py, `tests/**`
- [x] [T002] [P] Test it
  depends: T001
  files: a.py

## Phase 3: House
A paragraph.

* [X] [T003] [P:ui] Draw
    - files: b.py
    depends: [T001], T002
"""


def problems(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in tasklist.parse_task_list(text).problems]


def phase(*lines: str) -> str:
    return "\n".join(("## Phase 1: Ground", *lines, ""))


def test_a_list_is_read_with_all_that_its_tasks_say() -> None:
    assert tasklist.parse_task_list(GOOD) == TaskList(
        (
            Phase(
                "1",
                "Ground",
                5,
                (
                    Task("T001", "Make `links.py`", 6, files=("links.py", "tests/**")),
                    Task("T002", "Test it", 8, True, "P1", ("a.py",), ("T001",)),
                ),
            ),
            Phase("3", "House", 12, (Task("T003", "Draw", 15, True, "ui", ("b.py",), ("T001", "T002")),)),
        )
    )


def test_the_example_of_the_documentation_has_no_problem_and_no_warning() -> None:
    page = (checkout.TOP / "docs" / "tasks.md").read_text(encoding="utf-8")
    example = re.findall(r"^```markdown\n(.*?)^```$", page, re.M | re.S)[0]

    found = tasklist.parse_task_list(example)

    assert (len(found.phases), found.problems, found.warnings) == (2, (), ())


@pytest.mark.parametrize(
    "line",
    [
        "- [ ] T001 no brackets",
        "- [ ] no id at all",
        "- [ ] [T001]",
        "- [ ] [T001]glued",
        "- [ ] [t001] small",
        "- [ ] [TASK-1] words",
        "  - [ ] below another",
        "* [x] [001] no letter",
        "- [T001] no box",
        "- T001: neither",
        "1. [ ] [T001] numbered",
        "- [] [T001] an empty box",
    ],
)
def test_a_task_that_is_not_written_as_one_is_named_with_its_line(line: str) -> None:
    found = problems(phase("- [ ] [T009] fine", line))

    assert found == [(3, f"a task is `- [ ] [T001] text`, this is `{line.strip()}`")]


@pytest.mark.parametrize("mark", ["[p]", "[P:]", "[P: ui]", "[P:a b]", "[Parallel]"])
def test_a_mark_of_parallel_work_has_one_form(mark: str) -> None:
    found = problems(phase(f"- [ ] [T001] {mark} words"))

    if mark == "[Parallel]":
        assert found == [], "just a word in brackets"
    else:
        assert found == [
            (2, f"the mark for parallel tasks is `[P]` or `[P:group]`, this is `- [ ] [T001] {mark} words`")
        ]


@pytest.mark.parametrize(
    "heading",
    [
        "### Phase 2: House",
        "# Phase 2: House",
        "## Phase 2 House",
        "## Phase 2 - House",
        "## phase 2: House",
        "## Phase2: x",
    ],
)
def test_a_heading_that_is_nearly_a_phase_is_named(heading: str) -> None:
    text = phase("- [ ] [T001] fine", heading, "- [ ] [T002] fine")

    assert (3, f"a phase is `## Phase N: title`, this is `{heading}`") in problems(text)


def test_headings_that_only_speak_of_phases_are_text() -> None:
    assert problems(phase("### Phases of the moon", "- [ ] [T001] fine", "### Phasing", "#### Notes")) == []


def test_a_phase_needs_a_title_and_a_task() -> None:
    assert problems("## Phase 1:\n- [ ] [T001] x\n## Phase 2: Empty\nwords\n") == [
        (1, "Phase 1 has no title: `## Phase 1: title`"),
        (3, "Phase 2 has no task `- [ ] [T001] text`"),
    ]


def test_phases_are_numbered_once_and_upwards() -> None:
    text = "".join(f"## Phase {n}: x\n- [ ] [T00{place}] y\n" for place, n in enumerate((1, 3, 2, 3, 4)))

    assert problems(text) == [
        (5, "Phase 2 comes after Phase 3: number the phases 1, 2, 3"),
        (7, "Phase 3 is a duplicate: number the phases 1, 2, 3"),
    ]


def test_a_duplicate_id_is_a_problem() -> None:
    text = phase("- [ ] [T001] x") + "## Phase 2: y\n- [ ] [T001] z\n"

    assert problems(text) == [(4, "duplicate task ID T001 (first defined on line 2)")]


def test_a_box_outside_of_every_phase_is_named() -> None:
    text = "- [ ] [T001] before\n" + phase("- [ ] [T002] x") + "## Notes\n- [ ] [T003] after\n"

    words = "task outside a phase: move it below a `## Phase N: title`"
    assert problems(text) == [(1, words), (5, words)]


def test_a_dependency_must_be_there_and_not_later() -> None:
    text = phase("- [ ] [T001] x", "  depends: T002, T003, T009") + "## Phase 2: y\n- [ ] [T002] x\n- [ ] [T003] y\n"

    assert problems(text) == [
        (2, "T001 depends on T002, which comes later, in Phase 2"),
        (2, "T001 depends on T003, which comes later, in Phase 2"),
        (2, "T001 depends on T009, which is not in this list"),
    ]


def test_tasks_that_wait_for_each_other_are_named_in_their_circle() -> None:
    text = phase(
        "- [ ] [T001] x", "  depends: T003", "- [ ] [T002] x", "  depends: T001", "- [ ] [T003] x", "  depends: T002"
    )

    found = problems(text)

    assert len(found) == 1
    assert found[0][1].startswith("dependency cycle: ")
    assert sorted(set(re.findall(r"T\d+", found[0][1]))) == ["T001", "T002", "T003"]


def test_a_task_that_waits_for_itself_is_a_circle() -> None:
    assert problems(phase("- [ ] [T001] x", "  depends: T001")) == [(2, "dependency cycle: T001 -> T001")]


def test_depends_none_is_no_dependency() -> None:
    assert tasklist.parse_task_list(phase("- [ ] [T001] x", "  depends: none")).phases[0].tasks[0].depends == ()


def test_two_tasks_of_one_group_may_not_touch_the_same_file() -> None:
    same = phase("- [ ] [T001] [P:a] x", "  files: x.py, y.py", "- [ ] [T002] [P:a] x", "  files: y.py")

    assert problems(same) == [(4, "T001 and T002 may run in parallel and both touch y.py")]
    assert problems(same.replace("[T002] [P:a]", "[T002] [P:b]")) == []
    assert problems(same.replace("[P:a]", "[P]")) == problems(same)


def test_parallel_tasks_with_another_between_them_are_two_groups() -> None:
    text = phase("- [ ] [T001] [P] x", "  files: x.py", "- [ ] [T002] y", "- [ ] [T003] [P] x", "  files: x.py")

    assert problems(text) == []
    assert [task.group for task in tasklist.parse_task_list(text).phases[0].tasks] == ["P0", "", "P1"]


def test_files_and_depends_stand_indented_below_their_task() -> None:
    assert problems(phase("  files: x", "- [ ] [T001] x", "files: y", "  depends:")) == [
        (2, "`files:` has no task above it"),
        (4, "`files:` must be indented below its task"),
        (5, "`depends:` is empty"),
    ]


def test_a_parallel_task_without_files_is_a_warning_only() -> None:
    found = tasklist.parse_task_list(phase("- [ ] [T001] [P] x"))

    assert (found.problems, found.warnings) == ((), (Problem("", 2, 1, "T001 is marked [P] but has no `files:`"),))


def test_a_list_without_phases_is_one_phase_and_a_warning() -> None:
    found = tasklist.parse_task_list("# Tasks\n\n- [ ] [T001] x\n- [ ] [T002] y\n")

    assert [(phase.number, len(phase.tasks)) for phase in found.phases] == [("all", 2)]
    assert (found.problems, found.warnings) == (
        (),
        (Problem("", 1, 1, "no `## Phase N: title`: the whole list is one phase"),),
    )


@pytest.mark.parametrize("text", ["", "\n", "# Tasks\n\nNothing to do.\n"])
def test_a_list_without_tasks_is_no_list(text: str) -> None:
    assert problems(text) == [(1, "the list has no task `- [ ] [T001] text`")]


def test_lines_in_a_code_fence_are_ignored() -> None:
    fenced = "```\n## Phase 2: no\n- [ ] wrong\nfiles: x\n```"

    assert problems(phase("- [ ] [T001] x", fenced)) == []
    assert len(tasklist.parse_task_list(phase("- [ ] [T001] x", fenced)).phases) == 1


def test_the_phases_are_those_that_implement_takes() -> None:
    assert [(p.number, p.title, p.line) for p in tasklist.parse_task_list(GOOD).phases] == [
        (p.number, p.title, p.line) for p in markdown.phases(GOOD)
    ]


def test_lines_that_end_as_on_windows_are_read_alike() -> None:
    assert tasklist.parse_task_list(GOOD.replace("\n", "\r\n")) == tasklist.parse_task_list(GOOD)


LINES = """\
## Phase 1: a
## Phase 2: b
- [ ] [T001] x
- [x] [T002] [P] y
  files: a
  depends: T001
- [ ] z
```
### Phase 3: c
text

\t- [ ] [T003] [P:g] w
"""
_WORD = st.sampled_from(LINES.splitlines())


@given(st.lists(_WORD, max_size=14).map("\n".join) | st.text(string.printable, max_size=200))
def test_any_text_is_read_and_every_problem_has_a_line_of_it(text: str) -> None:
    found = tasklist.parse_task_list(text)

    last = max(1, len(text.splitlines()))
    assert all(1 <= problem.line <= last for problem in (*found.problems, *found.warnings))
    assert sorted(problem.line for problem in found.problems) == [problem.line for problem in found.problems]
