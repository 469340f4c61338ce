"""How far a review is follows from the event log alone, cut off after any of its lines."""

from __future__ import annotations

from typing import Any

import pytest

from doflow.engine.steps import review_progress
from doflow.engine.steps.review_progress import Progress
from doflow.flow import findings
from doflow.flow.findings import Answer, Issue

BAD = (Issue("C", "broken", "a.md"),)
WORSE = (Issue("C", "broken", "a.md"), Issue("H", "slow", "b.md"))


def started(of: str = "m1") -> dict[str, Any]:
    return {"event": "review_started", "step": "check", "of": of}


def answered(persona: str, issues: tuple[Issue, ...] = (), round_: int = 1, of: str = "m1") -> dict[str, Any]:
    answer = Answer(persona, "NO-GO" if issues else "GO", issues)
    return {"event": "review_answer", "step": "check", "round": round_, "of": of, **findings.answer_to_json(answer)}


def fixed(of: str = "m1", after: str = "m2", round_: int = 1) -> dict[str, Any]:
    return {"event": "review_fixed", "step": "check", "round": round_, "of": of, "after": after, "commit": f"c{round_}"}


STORY = [started(), answered("ann", BAD), answered("bob"), fixed(), answered("ann", round_=2, of="m2"),
         answered("bob", BAD, 2, "m2"), fixed("m2", "m3", 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "round_", "of", "personas"),
    [(1, 1, "m1", []), (2, 1, "m1", ["ann"]), (3, 1, "m1", ["ann", "bob"]), (4, 2, "m2", []), (5, 2, "m2", ["ann"]),
     (6, 2, "m2", ["ann", "bob"]), (7, 3, "m3", [])],
)  # fmt: skip
def test_cut_off_after_any_line_it_knows_who_has_answered_and_what_was_found(lines, round_, of, personas):
    now = review_progress.replay("check", STORY[:lines])

    assert now is not None
    assert (now.round, now.of, [answer.persona for answer in now.answers]) == (round_, of, personas)
    assert [found.id for found in now.known] == (["check-001"] if lines >= 4 else [])


def test_what_has_not_started_stands_nowhere():
    assert review_progress.replay("check", []) is None
    assert review_progress.replay("check", [answered("ann")]) is None


def test_answers_about_another_material_or_round_do_not_count():
    now = review_progress.replay("check", [started(), answered("ann", BAD, of="m0"), answered("bob", round_=2)])

    assert now == Progress(1, "m1")


def test_a_round_ends_with_the_commit_of_its_fixer():
    now = review_progress.replay("check", STORY[:4])

    assert now is not None
    assert (now.fix, now.seen) == ("c1", (frozenset({"check-001"}),))


def test_a_review_without_a_blocking_finding_is_over():
    assert review_progress.is_over("check", Progress(1, "m1", (Answer("ann", "GO", (Issue("M", "small", "a"),)),)), 5)


def test_a_review_with_one_goes_on_until_its_rounds_are_used_up():
    answers = (Answer("ann", "NO-GO", BAD),)

    assert not review_progress.is_over("check", Progress(1, "m1", answers), 2)
    assert review_progress.is_over("check", Progress(2, "m2", answers), 2)


def test_the_same_set_of_findings_twice_ends_it():
    first = Progress(1, "m1", (Answer("ann", "NO-GO", BAD),))
    second = review_progress.advance("check", first, "m2", "c1")
    same = Progress(2, "m2", first.answers, second.known, "c1", second.seen)
    other = Progress(2, "m2", (Answer("ann", "NO-GO", WORSE),), second.known, "c1", second.seen)

    assert review_progress.is_over("check", same, 5)
    assert not review_progress.is_over("check", other, 5)


def test_a_fixer_that_changed_nothing_ends_it_also_after_a_restart():
    now = review_progress.replay("check", [*STORY[:3], fixed(after="m1")])

    assert now is not None
    assert (now.round, len(now.answers), now.stuck) == (1, 2, True)
    assert review_progress.is_over("check", now, 5)
