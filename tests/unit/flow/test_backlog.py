"""tasks.json: what fits, what does not and why, and how it is read."""

from __future__ import annotations

import json

import pytest

from doflow.flow import backlog
from doflow.util.errors import UsageError

SCOPE = "CONTRACT DEFINITION:\n1. RESEARCH NOTE: a\n2. INPUT: b\n3. LOGIC: c\n4. OUTPUT: d"


def subtask(name, *before, **more):
    base = {"type": "Subtask", "id": name, "title": f"Do {name}", "status": "Planned", "story_points": 1}
    return base | {"dependencies": list(before), "context_scope": SCOPE} | more


def item(kind, name, key, inner):
    return {"type": kind, "id": name, "title": kind, "status": "Planned", "description": f"A {kind}.", key: inner}


def document(*subtasks, task="P1.M1.T1"):
    tasks = [item("Task", task, "subtasks", list(subtasks))]
    return {"backlog": [item("Phase", "P1", "milestones", [item("Milestone", "P1.M1", "tasks", tasks)])]}


def refusal(value):
    with pytest.raises(UsageError) as told:
        backlog.parse_backlog(value if isinstance(value, str) else json.dumps(value), "tasks.json")
    return told.value.message


ONE, TWO, THREE = (f"P1.M1.T1.S{number}" for number in (1, 2, 3))


def test_subtasks_come_in_the_order_of_the_file_but_none_before_what_it_depends_on():
    text = json.dumps(document(subtask(ONE, THREE), subtask(TWO), subtask(THREE)))

    assert [phase.number for phase in backlog.subtask_phases(text, "tasks.json")] == [TWO, THREE, ONE]


def test_a_phase_tells_all_that_the_backlog_says_about_its_subtask():
    (first, second) = backlog.subtask_phases(
        json.dumps(document(subtask(ONE), subtask(TWO, ONE, description="More."))), "t"
    )

    assert first.title == f"Do {ONE}"
    assert second.text == (
        f"## {TWO}: Do {TWO}\n\n- Phase P1: Phase. A Phase.\n- Milestone P1.M1: Milestone. A Milestone.\n"
        f"- Task P1.M1.T1: Task. A Task.\n- It builds on {ONE}, which is done.\n\nMore.\n\n{SCOPE}\n"
    )


def test_items_have_no_status_and_know_their_folder():
    (only,) = backlog.foreach_items(json.dumps(document(subtask(ONE))), "tasks.json")

    assert (only["work"], only["id"], "status" in only) == ("P1M1T1S1", ONE, False)


def test_a_status_changes_nothing_that_is_asked_for():
    text = json.dumps(document(subtask(ONE), subtask(TWO)))

    marked = backlog.with_statuses(text, {ONE: "Complete", TWO: "Failed"})

    assert backlog.without_statuses(marked) == backlog.without_statuses(text)
    assert backlog.subtask_phases(marked, "t") == backlog.subtask_phases(text, "t")
    assert backlog.without_statuses("not JSON") == "not JSON"


@pytest.mark.parametrize(
    ("statuses", "above"),
    [
        (("Planned", "Planned"), "Planned"),
        (("Ready", "Planned"), "Ready"),
        (("Implementing", "Planned"), "Implementing"),
        (("Complete", "Planned"), "Implementing"),
        (("Complete", "Complete"), "Complete"),
        (("Complete", "Obsolete"), "Complete"),
        (("Complete", "Failed"), "Failed"),
        (("Failed", "Planned"), "Implementing"),
    ],
)
def test_what_is_above_follows_from_what_is_in_it(statuses, above):
    text = json.dumps(document(subtask(ONE), subtask(TWO)))

    found = json.loads(backlog.with_statuses(text, dict(zip((ONE, TWO), statuses, strict=True))))["backlog"]

    assert {entry["status"] for entry in backlog.all_items(found) if entry["type"] != "Subtask"} == {above}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "tasks.json is not JSON"),
        ("[]", "tasks.json: $"),
        ({"backlog": []}, "$.backlog"),
        (document(), "$.backlog[0].milestones[0].tasks[0].subtasks"),
        (document(subtask("S1")), "subtasks[0].id"),
        (document(subtask(ONE, status="Done")), "subtasks[0].status"),
        (document(subtask(ONE, colour="red")), "colour"),
        (document(subtask(ONE, context_scope="Do it.")), "context_scope"),
        (
            document(subtask(ONE, context_scope="CONTRACT DEFINITION:\n2. INPUT: x")),
            f"{ONE}: its context_scope must have",
        ),
        (document(subtask(ONE), subtask(ONE)), f"{ONE}: duplicate id"),
        (document(subtask("P1.M2.T1.S1")), "an item in P1.M1.T1 needs an id that starts with `P1.M1.T1.`"),
        (document(subtask(ONE, ONE)), f"{ONE}: depends on itself"),
        (document(subtask(ONE, THREE)), f"{ONE}: depends on {THREE}, which is not a subtask here"),
        (document(subtask(ONE, TWO), subtask(TWO, ONE)), f"dependency cycle: {ONE}, {TWO}"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(value, words):
    assert words in refusal(value)


def test_a_huge_text_is_read_in_no_time():
    from time import process_time

    started = process_time()
    refusal(document(subtask(ONE, context_scope="CONTRACT DEFINITION:\n1. RESEARCH NOTE:" + "\n2. INPUT: x" * 50_000)))

    assert process_time() - started < 5
