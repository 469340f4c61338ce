"""The five rules that say what a phase is."""

from __future__ import annotations

import pytest

from doflow.flow.task_lists import parse_task_list


def phases(text: str) -> list[tuple[str, str]]:
    return [(phase.number, phase.title) for phase in parse_task_list(text).phases]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("## Phase 3: Build", ("3", "Build")),
        ("### Phase 3: Build", ("3", "Build")),
        ("# Phase 3 - Build", ("3", "Build")),
        ("## Phase 3.1: Build", ("3.1", "Build")),
        ("## Phase 2b — Build", ("2b", "Build")),
        ("## Phase 3：建造", ("3", "建造")),
        ("## Phase 3 (Build)", ("3", "(Build)")),
        ("## Phase A: Build", ("A", "Build")),
        ("## Phase N: Build", ("N", "Build")),
        ("## Phase IV: Build", ("IV", "Build")),
        ("## Phase Two: Build", ("Two", "Build")),
        ("## PHASE 3", ("3", "")),
        ("## **Phase 3: Build**", ("3", "Build")),
        ("## ✅ Phase 3: Build ##", ("3", "Build")),
        ("## [x] Phase 3: Build", ("3", "Build")),
        ("## Phase3: Build", ("3", "Build")),
        ("## Fase 3: Bouwen", ("3", "Bouwen")),
        ("## Étape 3 : Bâtir", ("3", "Bâtir")),
        ("## Этап 3. Строить", ("3", "Строить")),
        ("## Giai đoạn 3: Xây", ("3", "Xây")),
        ("## 阶段 3：建造", ("3", "建造")),
        ("## 阶段3：建造", ("3", "建造")),
        ("## 第 3 階段：建造", ("3", "建造")),
        ("## フェーズ3：作る", ("3", "作る")),
        ("## 3단계: 만들기", ("3", "만들기")),
        ("## Aşama 3: Yap", ("3", "Yap")),
    ],
)
def test_headings_that_are_phases(heading: str, expected: tuple[str, str]) -> None:
    text = f"# Tasks\n\n{heading}\n- [ ] T001 a\n\n## Notes\n- [ ] T002 b\n"

    assert phases(text) == [expected]


@pytest.mark.parametrize(
    "title",
    ["Phase Dependencies", "Phase A lot", "Final Phase: Polish", "Phases 1", "Fase: x", "Etapa: x", "Within Phase 2"],
)
def test_headings_that_are_not_phases(title: str) -> None:
    text = f"## Phase 1: A\n- [ ] T001 a\n## {title}\n- [ ] T002 b\n"

    assert phases(text) == [("1", "A")]


def test_the_highest_level_of_phase_headings_counts() -> None:
    text = "## Phase 1: A\n### Phase 1.1: B\n- [ ] a\n### Phase 1.2: C\n- [ ] b\n## Phase 2: D\n- [ ] c\n"

    assert phases(text) == [("1", "A"), ("2", "D")]


def test_a_level_without_boxes_is_passed_over() -> None:
    text = "# Phase 9\n# Tasks\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n"

    assert phases(text) == [("1", "A"), ("2", "B")]


@pytest.mark.parametrize("heading", ["## 1. A", "## 1) A", "## 1 A", "## **1. A**", "## 1️⃣ A", "## 1、A", "## ✅ 1. A"])
def test_numbered_headings_of_level_two(heading: str) -> None:
    assert phases(f"{heading}\n- [ ] a\n### 1.1 sub\n- [ ] b\n## Verify\n- [ ] c\n") == [("1", "A")]


def test_numbered_headings_keep_a_letter_and_come_before_phases_in_their_title() -> None:
    text = "## 5. A\n- [ ] 5.1 a\n## 5b. B\n- [ ] 5b.1 b\n## 6. Phase B: C\n- [ ] 6.1 c\n## 3D view\n- [ ] 6.2 d\n"

    assert phases(text) == [("5", "A"), ("5b", "B"), ("6", "Phase B: C")]
    assert [task.id for task in parse_task_list(text).tasks] == ["5.1", "5b.1", "6.1", "6.2"]


def test_dates_are_not_numbered_headings() -> None:
    assert phases("## 2026-01-02 log\n- [ ] a\n## Rest\n- [ ] b\n") == [("1", "2026-01-02 log"), ("2", "Rest")]


def test_whole_number_boxes_only_with_sub_numbers() -> None:
    assert phases("## T\n- [ ] 1. A\n- [ ] 2. B\n") == [("1", "T")]
    assert phases("## T\n- [ ] 1. A\n- [ ] 1.1 a\n- [ ] 2. B\n") == [("1", "A"), ("2", "B")]


def test_headings_of_level_two_that_own_a_box() -> None:
    assert phases("# T\n## A\n- [ ] a\n## B\ntext\n## C\n### D\n- [ ] b\n") == [("1", "A"), ("2", "C")]


def test_the_whole_list_is_named_by_its_title() -> None:
    assert phases("# Shopping\n- [ ] a\n### B\n- [ ] b\n") == [("1", "Shopping")]
