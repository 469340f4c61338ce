"""Task lists in every style: what is read of them, and that a tick changes nothing else."""

from __future__ import annotations

import pytest

from doflow.flow.task_lists import Phase, Task, TaskList, parse_task_list, tick

SPEC_KIT = """\
# Tasks: Reading lamp

**Input**: plan.md

## Format: `- [ ] [ID] [P?] [Story] Description`

- **[P]**: may run in parallel

## Phase 1: Setup (Shared)

- [X] T001 Create the package in lamp/__init__.py
- [ ] T002 [P] [US1] Test the switch in `tests/test_switch.py` (depends on T001)

**Checkpoint**: the switch works

---

## Phase 2: User Story 1 - Dim it (Priority: P1) 🎯 MVP

### Tests for User Story 1

- [ ] T003 [US1] Dim in `lamp/dim.py` per FR-004, depends on T001 and T002

### Implementation

- [ ] T004 🔧 [P] [US1] Wire it, see [the plan](docs/plan.md)

## Dependencies & Execution Order

### Phase Dependencies

- **Phase 2**: depends on Phase 1

## Parallel Example: User Story 1

```bash
- [ ] T099 not a task
```

## Definition of Done

- [ ] All lamps are bright
"""

OPEN_SPEC = """\
## 1. Parser
- [x] 1.1 Read `src/parse.ts`
- [ ] 1.2 Handle errors
  - [ ] 1.2.1 Unknown keys

## 2. Docs
- [ ] 2.1 Write docs/usage.md
"""

KIRO = """\
# Implementation Plan

- [ ] 1. Set up the store
  - [x] 1.1 Create `src/store.ts`
    - hold the entries in memory
    - _Requirements: 1.1, 2.3_
  - [ ]* 1.2 Write property tests
    - **Validates: Requirements 1.4**
- [-] 2. Connect the view
- [ ]* 3. Polish
  - [ ] 3.1 Animate it

## Notes

- `*` marks optional tasks
"""

BMAD = """\
# Story 1.2: A lamp that remembers

Status: ready

## Story

As a reader, I want the lamp to remember.

## Acceptance Criteria

1. The level is kept

## Tasks / Subtasks

- [x] **Task 1: Store the level** (AC: 1)
  - [x] Write `lamp/level.py`
  - [x] Read it at start
- [ ] Task 2: Show it (AC: #1, #3)
  - [ ] Subtask 2.1: Draw the level

## Dev Notes

- Nothing
"""

PLAIN = "buy bulbs first\n\n* [ ] bulbs\n* [x] a lamp\n    + [ ] with a shade\n1. [ ] a plug\n"

STRICT = """\
# Tasks

## Phase 1: Ground
- [ ] [T001] Make `a.py`
  files: a.py, tests/**
- [x] [T002] [P:tests] Test it
  depends: T001
"""


def ids(text: str) -> dict[str, list[str]]:
    return {phase.number: [task.id for task in phase.tasks] for phase in parse_task_list(text).phases}


def messages(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in parse_task_list(text).problems]


def test_spec_kit_phases_tasks_marks_and_checklists() -> None:
    tasks = parse_task_list(SPEC_KIT)

    assert tasks.style == "spec-kit"
    assert [(phase.number, phase.title, phase.line, phase.done) for phase in tasks.phases] == [
        ("1", "Setup (Shared)", 9, False),
        ("2", "User Story 1 - Dim it (Priority: P1) 🎯 MVP", 18, False),
    ]
    assert tasks.tasks == (
        Task("T001", "Create the package in lamp/__init__.py", 11, done=True, files=("lamp/__init__.py",)),
        Task(
            "T002",
            "Test the switch in `tests/test_switch.py` (depends on T001)",
            12,
            parallel=True,
            story="US1",
            files=("tests/test_switch.py",),
            depends=("T001",),
        ),
        Task(
            "T003",
            "Dim in `lamp/dim.py` per FR-004, depends on T001 and T002",
            22,
            story="US1",
            files=("lamp/dim.py",),
            depends=("T001", "T002"),
            requirements=("FR-004",),
        ),
        Task(
            "T004",
            "🔧 [P] [US1] Wire it, see [the plan](docs/plan.md)",
            26,
            parallel=True,
            story="US1",
            files=("docs/plan.md",),
        ),
    )
    assert messages(SPEC_KIT) == [
        (42, "1 box below “Definition of Done” in no phase and without an ID: not taken as a task")
    ]


def test_openspec_numbered_headings() -> None:
    tasks = parse_task_list(OPEN_SPEC)

    assert (tasks.style, tasks.problems) == ("openspec", ())
    assert ids(OPEN_SPEC) == {"1": ["1.1", "1.2", "1.2.1"], "2": ["2.1"]}
    assert [phase.title for phase in tasks.phases] == ["Parser", "Docs"]
    assert [task.files for task in tasks.tasks] == [("src/parse.ts",), (), (), ("docs/usage.md",)]


def test_kiro_boxes_head_phases_and_stars_are_optional() -> None:
    tasks = parse_task_list(KIRO)

    assert (tasks.style, tasks.problems) == ("kiro", ())
    assert tasks.phases == (
        Phase(
            "1",
            "Set up the store",
            3,
            (
                Task("1", "Set up the store", 3, head=True),
                Task(
                    "1.1",
                    "Create `src/store.ts`",
                    4,
                    done=True,
                    files=("src/store.ts",),
                    requirements=("1.1", "2.3"),
                    notes=("- hold the entries in memory", "- _Requirements: 1.1, 2.3_"),
                ),
                Task(
                    "1.2",
                    "Write property tests",
                    7,
                    optional=True,
                    requirements=("1.4",),
                    notes=("- **Validates: Requirements 1.4**",),
                ),
            ),
        ),
        Phase("2", "Connect the view", 9, (Task("2", "Connect the view", 9, head=True),)),
        Phase(
            "3",
            "Polish",
            10,
            (Task("3", "Polish", 10, optional=True, head=True), Task("3.1", "Animate it", 11, optional=True)),
        ),
    )
    assert [phase.done for phase in tasks.phases] == [True, False, True]


@pytest.mark.parametrize("indent", ["", "  ", "\t"])
def test_kiro_sub_tasks_may_be_indented_or_not(indent: str) -> None:
    text = f"## Tasks\n\n- [ ] 1. A\n{indent}- [x] 1.1 B\n\n- [x] 2. C\n{indent}- [x] 2.1 D\n"

    assert ids(text) == {"1": ["1", "1.1"], "2": ["2", "2.1"]}


def test_bmad_stories_with_nested_boxes() -> None:
    tasks = parse_task_list(BMAD)

    assert (tasks.style, tasks.problems) == ("bmad", ())
    assert [(phase.number, phase.title) for phase in tasks.phases] == [("1", "Tasks / Subtasks")]
    assert [(task.id, task.text, task.requirements) for task in tasks.tasks] == [
        ("1", "Store the level (AC: 1)", ("1",)),
        ("1.1", "Write `lamp/level.py`", ()),
        ("1.2", "Read it at start", ()),
        ("2", "Show it (AC: #1, #3)", ("1", "3")),
        ("2.1", "Draw the level", ()),
    ]


def test_a_plain_checklist_is_one_phase_with_made_up_ids() -> None:
    tasks = parse_task_list(PLAIN)

    assert (tasks.style, tasks.problems) == ("plain", ())
    assert tasks.phases == (
        Phase(
            "1",
            "",
            3,
            (
                Task("1", "bulbs", 3),
                Task("2", "a lamp", 4, done=True),
                Task("2.1", "with a shade", 5),
                Task("3", "a plug", 6),
            ),
        ),
    )


def test_the_strict_form_is_read_too() -> None:
    tasks = parse_task_list(STRICT)

    assert (tasks.style, tasks.problems) == ("doflow", ())
    assert [(task.id, task.text, task.files, task.depends, task.parallel) for task in tasks.tasks] == [
        ("T001", "Make `a.py`", ("a.py", "tests/**"), (), False),
        ("T002", "Test it", (), ("T001",), True),
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "the file is empty"),
        ("# Tasks\n\nnothing\n", 1, "no box: a task is `- [ ] text`"),
        ("# T\n\n```\n- [ ] a\n```\n", 4, "all boxes are in code fences; a task is `- [ ] text` outside of them"),
        ("# T\n- T001 do it\n", 2, "no box: a task is `- [ ] text`, this is `- T001 do it`"),
    ],
)
def test_a_text_without_a_box_is_not_a_list(text: str, line: int, reason: str) -> None:
    tasks = parse_task_list(text)

    assert (tasks.style, tasks.phases) == ("", ())
    assert messages(text) == [(line, reason)]


def test_real_tasks_outside_the_phases_go_to_the_phase_above() -> None:
    text = "- [ ] T001 a\n## Phase 1: A\n- [ ] T002 b\n## Final touches\n- [ ] T003 c\n  - [ ] detail\n- [ ] tidy\n"

    assert ids(text) == {"1": ["T001", "T002", "T003", "T003.1"]}
    assert messages(text) == [
        (1, "1 task at the top in no phase: taken into phase 1"),
        (5, "2 tasks below “Final touches” in no phase: taken into phase 1"),
        (5, "1 box below “Final touches” in no phase and without an ID: not taken as a task"),
    ]


def test_outside_the_phases_a_task_may_have_an_id_of_another_kind() -> None:
    text = (
        "## 1. Parser\n- [ ] 1.1 a\n- [ ] 1.2 b\n## Verification\n### V.1 By hand\n- [ ] V.1.1 c\n- [ ] V.1.2 d\n"
        "## Acceptance Criteria\n- [ ] AC-1: e\n- [ ] AC-2: f\n- [ ] all is well\n"
    )

    assert ids(text) == {"1": ["1.1", "1.2", "V.1.1", "V.1.2", "AC-1", "AC-2"]}
    assert messages(text) == [
        (6, "2 tasks below “V.1 By hand” in no phase: taken into phase 1"),
        (9, "2 tasks below “Acceptance Criteria” in no phase: taken into phase 1"),
        (9, "1 box below “Acceptance Criteria” in no phase and without an ID: not taken as a task"),
    ]


def test_where_tasks_have_no_ids_every_box_is_a_task() -> None:
    assert ids("## Phase 1: A\n- [ ] a\n## Later\n- [ ] b\n") == {"1": ["1", "2"]}


def test_duplicate_ids_are_told_apart_by_phase() -> None:
    text = "## Phase 1: A\n- [ ] T001 a\n- [ ] T001 b\n## Phase 2: B\n- [ ] T001 c\n## Phase 2: C\n- [ ] T002 d\n"
    tasks = parse_task_list(text)

    assert messages(text) == [
        (3, "duplicate task ID T001 (first on line 2, in the same phase)"),
        (5, "duplicate task ID T001 (first on line 2, in phase 1)"),
        (6, "duplicate phase number 2 (first on line 4)"),
    ]
    assert [task.line for task in tasks.find("T001")] == [2, 3, 5]
    assert [task.line for task in tasks.find("2/T001")] == [5]
    assert tasks.find("T009") == ()


def test_a_dependency_that_is_missing_is_reported() -> None:
    text = "## Phase 1: A\n- [ ] T001 a (depends on T009)\n- [ ] T002 b, depends on US1 and 3 lamps\n"

    assert messages(text) == [(2, "T001 depends on T009, which is not in this list")]


def test_a_phase_without_a_box_and_a_box_without_a_text_are_reported() -> None:
    text = "## Phase 1: A\n\n## Phase 2: B\n- [ ] T001 a\n- [ ]\n"

    assert messages(text) == [(1, "phase 1 has no box: not taken as a phase"), (5, "a box without a text")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- [ ] UTF-8 names\n- [ ] S3 upload\n- [ ] S3 download\n", ["1", "2", "3"]),
        ("- [ ] 3 unit tests\n- [ ] 5 other tests\n", ["1", "2"]),
        ("- [ ] 1 Setup\n- [ ] 1.1 Install\n", ["1", "1.1"]),
        ("- [ ] 6. a\n- [ ] 6a. b\n- [ ] 3d view\n", ["6", "6a", "1"]),
        ("- [ ] C1.1 a\n- [ ] C1.2 b\n", ["C1.1", "C1.2"]),
        ("- [ ] **T005a** a\n- [ ] ~~T006~~ b\n- [ ] `T007`: c\n- [ ] (T008) d\n", ["T005a", "T006", "T007", "T008"]),
        ("- [ ] TASK-001: a\n- [ ] TASK-002: b\n", ["TASK-001", "TASK-002"]),
        ("- [ ] 任务 1：一\n- [ ] 任务 2：二\n", ["1", "2"]),
        ("- [ ] T1在 a\n- [ ] 1.1创建\n", ["T1", "1.1"]),
        ("- [ ] 1. a\n- [ ] b\n", ["1", "2"]),
    ],
)
def test_ids_are_what_the_list_uses_as_such(text: str, expected: list[str]) -> None:
    assert [task.id for task in parse_task_list(text).tasks] == expected


TICKED = "- [ ] a\n- [x] b\n- [X] c\n- [-] d\n- [~] e\n- [] f\n- [ ]* g\n- [ ]\\* h\n- [✓] i\n- [ x ] j\n- [P] k\n- [x](l) m\n"


def test_marks_of_boxes() -> None:
    tasks = parse_task_list(TICKED).tasks

    assert [task.text for task in tasks] == list("abcdefghij")
    assert [task.text for task in tasks if task.done] == ["b", "c", "i", "j"]
    assert [task.text for task in tasks if task.optional] == ["g", "h"]


@pytest.mark.parametrize(
    "hidden",
    [
        "```\n- [ ] no\n```\n",
        "~~~md\n- [ ] no\n```\n~~~\n",
        "  ```\n- [ ] no\n## Phase 1: no\n  ```\n",
        "- ```sh\n  - [ ] no\n  ```\n",
        "<!-- - [ ] no -->\n",
        "<!--\n- [ ] no\n## Phase 1: no\n-->\n",
    ],
)
def test_fences_and_comments_hide_boxes(hidden: str) -> None:
    assert ids(f"- [ ] a\n{hidden}- [ ] b\n") == {"1": ["1", "2"]}


@pytest.mark.parametrize("shown", ["- [ ] ```a``` is code", "- [ ] replace `<!--` by `-->`", "<!-- open\n- [ ] b"])
def test_what_only_looks_like_a_fence_or_comment_hides_nothing(shown: str) -> None:
    assert len(parse_task_list(f"- [ ] a\n{shown}\n- [ ] c\n").tasks) == 3


def test_an_unclosed_fence_is_reported() -> None:
    assert messages("- [ ] a\n```\n- [ ] b\n") == [
        (2, "code fence is never closed: the rest of the file is read as code")
    ]


BYTES = [
    *(text.encode() for text in (SPEC_KIT, OPEN_SPEC, KIRO, BMAD, PLAIN, STRICT, TICKED)),
    SPEC_KIT.replace("\n", "\r\n").encode(),
    b"\xef\xbb\xbf" + KIRO.replace("  ", "\t").encode(),
    b"\xef\xbb\xbf- [ ] first\r- [ ] old Mac\x0b\x0c\x85\r\n- [ ] \xff\xfe odd \x00 bytes\n- [ ] last",
    "## Phase 1: x\u2028- [ ] no\n- [ ] \u2028 yes\n".encode(),
]


@pytest.mark.parametrize("data", BYTES)
def test_a_tick_changes_the_bytes_of_its_box_alone(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    tasks = parse_task_list(text)

    assert tasks.tasks
    for task in tasks.tasks:
        after = tick(text, task)
        assert _without_a_box(text, task) == _without_a_box(after, task)
        assert [one.done or one.line == task.line for one in tasks.tasks] == [
            one.done for one in parse_task_list(after).tasks
        ]
        assert after.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == after


def _without_a_box(text: str, task: Task) -> list[str]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    before, _, after = lines[task.line - 1].partition("[")
    lines[task.line - 1] = before + after.partition("]")[2]
    return [*lines, str(text.count("\r"))]


@pytest.mark.parametrize("text", ["", "- [ ] a\n- [ ] other\n", "- [ ] a\n\nx\n", "- [ ] a"])
def test_a_tick_of_a_task_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not the box of task T2"):
        tick(text, Task("T2", "b", 2))


def test_the_lists_that_are_empty_have_no_tasks() -> None:
    assert TaskList("", ()).tasks == ()
