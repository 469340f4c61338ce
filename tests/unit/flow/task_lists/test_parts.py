"""Long phases are cut at their sub-headings or heading boxes."""

from __future__ import annotations

from doflow.flow import task_lists
from doflow.flow.markdown import Phase

HEADINGS = "## Phase 3: Build\n\nIntro.\n\n### Tests\n\n- [ ] T1 a\n\n### Notes\n\nNo box.\n\n### Code\n\n- [ ] T2 b\n- [x] T3 c\n"
NESTED = "- [ ] 2. Build\n  - [ ] 2.1 Walls\n    - [ ] 2.1.1 Left\n  - [ ] 2.2 Door\n  - [ ] 2.3 Roof\n    - [ ] 2.3.1 Beams\n"


def parts(text: str) -> list[tuple[str, str, str, int]]:
    found = task_lists.phase_parts(Phase("3", "Build", text, 10))
    assert "".join(part.text for part in found) == text, "nothing is lost or twice"
    return [(part.number, part.title, part.part_of, part.line) for part in found]


def test_a_phase_is_cut_at_its_sub_headings_that_own_boxes() -> None:
    assert parts(HEADINGS) == [
        ("3-part1", "Build, part 1: Tests", "3", 10),
        ("3-part2", "Build, part 2: Code", "3", 22),
    ]


def test_boxes_above_the_first_sub_heading_are_a_part() -> None:
    text = HEADINGS.replace("Intro.", "- [ ] T0 first")
    assert [title for _, title, _, _ in parts(text)] == ["Build, part 1", "Build, part 2: Tests", "Build, part 3: Code"]


def test_without_sub_headings_it_is_cut_at_heading_boxes() -> None:
    assert parts(NESTED) == [
        ("3-part1", "Build, part 1: 2.1 Walls", "3", 10),
        ("3-part2", "Build, part 2: 2.3 Roof", "3", 14),
    ]


def test_a_phase_without_such_places_stays_whole() -> None:
    flat = "## Phase 3: Build\n" + "- [ ] one\n" * 40
    fenced = flat + "```\n### Not a heading\n- [ ] not a box\n```\n"
    for text in (flat, fenced, "## Phase 3: Build\n### Only\n" + "- [ ] one\n" * 40):
        assert parts(text) == [("3", "Build", "", 10)]


def test_the_lines_keep_their_ends() -> None:
    assert len(parts(HEADINGS.replace("\n", "\r\n"))) == 2
