"""Marks, files, dependencies and requirements of a task."""

from __future__ import annotations

import pytest

from doflow.flow.task_lists import details, parse_task_list


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("Add `src/a.py` and tests/b.py.", ("src/a.py", "tests/b.py")),
        ("Change (src/app/[id]/page.tsx), `src/(shop)/cart.ts`", ("src/app/[id]/page.tsx", "src/(shop)/cart.ts")),
        ("See `src/a.py:12`, src/b.py#L3", ("src/a.py", "src/b.py")),
        ("Fill `docs/` and `src/app`, edit `Makefile`", ("docs/", "src/app", "Makefile")),
        ("Update package.json and **README.md** (see __init__.py).", ("package.json", "README.md", "__init__.py")),
        ("see [the plan](./docs/plan.md), .github/a.yml", ("docs/plan.md", ".github/a.yml")),
        ("read/write and/or `POST /login`, https://a.org/b.html, `console.log()`, e.g. this", ()),
        ("use `self.name` or np.array", ()),
        ("globs `src/**/*.ts`", ("src/**/*.ts",)),
    ],
)
def test_files_in_a_text(text: str, files: tuple[str, ...]) -> None:
    assert details.find_files(text, ()) == files


@pytest.mark.parametrize(
    "line", ["files: a.py, `b c.py`", "- **Files**: a.py, b c.py", "Files：a.py、`b c.py`", "- _Files: a.py; b c.py_"]
)
def test_lines_that_name_files(line: str) -> None:
    assert details.find_files("x", [line]) == ("a.py", "b c.py")


@pytest.mark.parametrize(
    "text",
    [
        "b (depends on T001, T002)",
        "b (Depends on: T001 and T002)",
        "b — depends upon [T001], [T002]",
        "b (depends on T001-T002)",
        "b (depends on T001–T002)",
        "b **Dependencies**: T001, T002",
        "b, blocked by T001 & T002",
        "b（依赖 T001、T002）",
        "b (зависит от T001, T002)",
    ],
)
def test_dependencies_in_a_text(text: str) -> None:
    tasks = parse_task_list(f"- [ ] T001 a\n- [ ] T002 a\n- [ ] T003 {text}\n").tasks

    assert tasks[2].depends == ("T001", "T002")


def test_dependencies_on_numbers_and_in_lines_below() -> None:
    tasks = parse_task_list("- [ ] 1.1 a\n- [ ] 1.2 b\n  - _Depends: 1.1_\n- [ ] 1.3 c\n  depends: none\n").tasks

    assert [task.depends for task in tasks] == [(), ("1.1",), ()]
    assert [task.requirements for task in tasks] == [(), (), ()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- _Requirements: 1.1, 2.3_", ("1.1", "2.3")),
        ("- _需求: 1.1, 2.3_", ("1.1", "2.3")),
        ("_Requirements: FR-1, 3_", ("FR-1", "3")),
        ("- **Validates: Requirements 6.5**", ("6.5",)),
        ("- _Priority: P1_", ()),
        ("- _Result: fine_", ()),
        ("per FR-002 and SC-001", ("FR-002", "SC-001")),
        ("(ACs: 1, #2)", ("1", "2")),
    ],
)
def test_requirements(line: str, expected: tuple[str, ...]) -> None:
    assert details.find_requirements("x", [line]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[P] [US1] x", ("x", True, "US1")),
        ("[US2] [P] x", ("x", True, "US2")),
        ("[P:tests] x", ("x", True, "")),
        ("[GAP] x", ("[GAP] x", False, "")),
        ("✋ [US4] x", ("✋ [US4] x", False, "US4")),
        ("x", ("x", False, "")),
    ],
)
def test_marks(text: str, expected: tuple[str, bool, str]) -> None:
    assert details.split_marks(text) == expected
