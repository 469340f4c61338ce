"""A new version of a task list: ticked tasks stay as they were, and why an answer is refused."""

from __future__ import annotations

import pytest

from doflow.flow.task_lists import revise

OLD = """# Tasks

## Phase 1: Ground

- [x] T001 Lay it in `src/ground.py`
  - of stone
- [ ] T002 Check it

## Phase 2: House

- [X] T003 Draw it

- [ ] T004 Build it
"""


def test_new_and_changed_tasks_are_open_and_ticked_ones_as_they_were() -> None:
    answer = (
        OLD.replace("Lay it in `src/ground.py`\n  - of stone", "Lay it, deeper")
        .replace("- [X] T003", "- [ ] T003")
        .replace("- [ ] T004 Build it", "- [x] T004 Build it of brick\n- [x] T005 Paint it")
    )

    assert revise(OLD, answer) == (
        OLD.replace("T004 Build it", "T004 Build it of brick\n- [ ] T005 Paint it"),
        (),
    )


def test_the_list_itself_is_taken_out_of_a_fence_and_keeps_its_line_ends() -> None:
    old = "\ufeff" + OLD.replace("\n", "\r\n")

    for answer in (OLD, OLD.rstrip(), f"```markdown\n{OLD}```\n", f"Here it is:\n\n```\n{OLD}```\nDone.\n"):
        assert revise(old, answer) == (old, ())


def test_tasks_without_ids_are_found_by_their_text() -> None:
    old = "- [x] buy bulbs\n- [ ] dig\n- [x] water\n  every day"

    assert revise(old, "- [ ] buy bulbs\n- [ ] dig deep\n- [ ] rest\n- [x] water\n") == (
        "- [x] buy bulbs\n- [ ] dig deep\n- [ ] rest\n- [x] water\n  every day",
        (),
    )
    assert revise(old, "- [ ] buy tulips\n- [ ] water\n")[1] == ("the ticked task “buy bulbs” is missing",)


def test_boxes_below_a_ticked_head_are_not_lost() -> None:
    old = "- [x] 1. Ground\n  - [x] 1.1 Lay it\n- [ ] 2. House\n  - [ ] 2.1 Build it\n"
    answer = old.replace("1.1 Lay it\n", "1.1 Lay it\n  - [ ] 1.2 Check it\n").replace("1. Ground", "1. The ground")

    assert revise(old, answer) == (old.replace("1.1 Lay it\n", "1.1 Lay it\n  - [ ] 1.2 Check it\n"), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("- [X] T003 Draw it\n", ""), "the ticked task T003 is missing"),
        (("[X] T003 Draw it", "[ ] T003 Plan it\n- [ ] T005 Draw it"), "the ticked task T003 has another ID: T005"),
        (("- [X] T003", "## Phase 3: Roof\n\n- [X] T003"), "the ticked task T003 is in another phase"),
        ((OLD, "I have no idea.\n"), "not a task list: no box: a task is `- [ ] text`"),
        ((OLD, ""), "not a task list: it is empty"),
    ],
)
def test_what_takes_a_ticked_task_away_is_a_reason(change: tuple[str, str], reason: str) -> None:
    assert revise(OLD, OLD.replace(*change))[1] == (reason,)


def test_ticked_tasks_that_changed_places_are_a_reason() -> None:
    old = "- [x] T001 a\n- [x] T002 b\n- [ ] T003 c\n"

    assert revise(old, "- [x] T002 b\n- [x] T001 a\n- [ ] T003 c\n")[1] == (
        "the ticked tasks T001 and T002 have changed places",
    )
