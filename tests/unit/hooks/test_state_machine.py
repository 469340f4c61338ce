"""The state machine of sub-agents, rule by rule, without hooks or files: start, stop, restart, words that are kept."""

from __future__ import annotations

from typing import Any

import pytest

from doflow.hooks import state_machine


def machine(**more: Any) -> state_machine.Machine:
    def state(allow: str, stop: dict[str, str], start: dict[str, str] | None = None) -> dict[str, Any]:
        return {
            "allow": dict.fromkeys(allow.split(), True), "on_stop": stop, "on_start": start or {}, "about": "", "inject": "",
        }  # fmt: skip

    return {
        "machine": "small", "start": "A", "complete": "Z", "expires": 60.0, "history": 3,
        "context": {"found": {"agents": {"one": True, "two": True}, "section": "", "limit": 40}},
        "states": {
            "A": state("one", {"one": "B"}),
            "B": state("two help*", {"two": "C"}),
            "C": state("two three", {"two": "C"}, {"three": "Z"}),
            "Z": state("one", {"one": "B"}),
        },
    } | more  # fmt: skip


@pytest.fixture
def doc() -> state_machine.Doc:
    return state_machine.new_document(machine(), "s", "/p", "t0")


def start(doc: state_machine.Doc, agent: str, ident: str) -> str:
    return state_machine.agent_started(machine(), doc, agent, ident, "t1")


def stop(doc: state_machine.Doc, agent: str, ident: str, text: str = "") -> str:
    return state_machine.agent_stopped(machine(), doc, agent, ident, text, "t2")


def test_a_stop_moves_the_state_by_the_rule_of_the_agent(doc: state_machine.Doc) -> None:
    assert (start(doc, "one", "1"), doc["state"]) == ("one started in A", "A")
    assert (stop(doc, "one", "1"), doc["state"]) == ("one stopped: A -> B", "B")
    assert (doc["doflow"]["active"], doc["doflow"]["ended"]) == ({}, ["1"])
    assert doc["history"] == [{"agent": "one", "timestamp": "t2", "state_before": "A", "state_after": "B"}]


def test_an_agent_without_a_rule_moves_nothing(doc: state_machine.Doc) -> None:
    start(doc, "helper", "1")

    assert stop(doc, "helper", "1", "words") == "helper stopped in A: no rule, state unchanged"
    assert (doc["state"], doc["history"], doc["context"]) == ("A", [], {"found": ""})


def test_a_stop_without_a_start_and_without_a_rule_moves_nothing(doc: state_machine.Doc) -> None:
    assert stop(doc, "two", "1", "words") == "two stopped in A: no rule, state unchanged"
    assert (doc["state"], doc["context"]) == ("A", {"found": ""})


def test_a_stop_that_comes_twice_counts_once(doc: state_machine.Doc) -> None:
    doc["state"] = "Z"
    start(doc, "one", "1")
    stop(doc, "one", "1")
    doc["state"] = "Z"

    assert (stop(doc, "one", "1"), doc["state"], len(doc["history"])) == ("", "Z", 1)


def test_a_stop_without_a_start_counts(doc: state_machine.Doc) -> None:
    assert (stop(doc, "one", "1"), doc["state"]) == ("one stopped: A -> B", "B")


def test_an_agent_that_is_started_again_under_its_id_stops_a_second_time(doc: state_machine.Doc) -> None:
    start(doc, "one", "1")
    stop(doc, "one", "1", "first words")
    doc["state"] = "Z"

    assert start(doc, "one", "1") == "one started in Z"
    assert (doc["doflow"]["ended"], list(doc["doflow"]["active"])) == ([], ["1"])
    assert (stop(doc, "one", "1", "second words"), doc["state"]) == ("one stopped: Z -> B", "B")
    assert (len(doc["history"]), doc["context"]) == (2, {"found": "second words"})
    assert stop(doc, "one", "1") == "", "a third stop is a doubled one"


def test_a_start_that_comes_twice_counts_once(doc: state_machine.Doc) -> None:
    doc["state"] = "C"
    assert (start(doc, "three", "1"), doc["state"]) == ("three started: C -> Z", "Z")
    doc["state"] = "C"

    assert (start(doc, "three", "1"), doc["state"], len(doc["history"])) == ("", "C", 1)


def test_agents_without_an_id_are_known_by_their_name_and_never_doubled(doc: state_machine.Doc) -> None:
    doc["state"] = "C"
    start(doc, "two", "")
    assert list(doc["doflow"]["active"]) == ["two"]

    told = [stop(doc, "two", ""), stop(doc, "two", "")]

    assert told == ["two stopped: C -> C"] * 2
    assert (doc["doflow"]["active"], doc["doflow"]["ended"]) == ({}, [])


def test_words_of_agents_in_one_state_stand_one_after_the_other_up_to_the_limit(doc: state_machine.Doc) -> None:
    stop(doc, "one", "0", "of the state before")
    stop(doc, "two", "1", "first")
    assert doc["context"]["found"] == "first"
    stop(doc, "two", "2", "second")
    assert doc["context"]["found"] == "first\n\nsecond"

    stop(doc, "two", "3", "x" * 100)

    assert doc["context"]["found"] == "first\n\nsecond\n\n" + "x" * 25


def test_a_doubled_stop_completes_its_own_words_and_no_others(doc: state_machine.Doc) -> None:
    doc["state"] = "B"
    stop(doc, "two", "1", "fir")
    stop(doc, "two", "1", "first")
    assert doc["context"]["found"] == "first"

    stop(doc, "two", "2", "second")
    stop(doc, "two", "1", "late")

    assert doc["context"]["found"] == "first\n\nsecond"


def test_words_of_an_agent_whose_state_was_left_meanwhile_are_kept(doc: state_machine.Doc) -> None:
    doc["state"] = "B"
    start(doc, "two", "1")
    doc["state"] = "A"

    assert stop(doc, "two", "1", "late words") == "two stopped in A: no rule, state unchanged"
    assert (doc["state"], doc["context"]["found"]) == ("A", "late words")


def test_a_new_round_forgets_the_words_of_the_last_one(doc: state_machine.Doc) -> None:
    stop(doc, "one", "1", "old")
    stop(doc, "two", "2", "older")
    doc["state"] = "Z"

    stop(doc, "one", "3")

    assert (doc["context"], doc["doflow"]["kept"]) == ({"found": ""}, {})


def test_only_the_last_moves_and_ends_are_remembered(doc: state_machine.Doc) -> None:
    doc["state"] = "C"
    for number in range(state_machine.REMEMBERED + 5):
        stop(doc, "two", f"id{number}")

    assert (len(doc["history"]), len(doc["doflow"]["ended"])) == (3, state_machine.REMEMBERED)
    assert doc["doflow"]["ended"][0] == "id5"


def test_who_is_not_at_work_when_the_turn_ends_is_forgotten_and_moves_nothing(doc: state_machine.Doc) -> None:
    start(doc, "one", "1")
    start(doc, "one", "2")

    assert state_machine.forget_lost_agents(doc, {"2"}) == ["one"]
    assert (list(doc["doflow"]["active"]), doc["state"]) == (["2"], "A")


@pytest.mark.parametrize(
    ("state", "change", "expected"),
    [
        ("B", {}, False),
        ("A", {}, True),
        ("B", {"turn": True}, True),
        ("B", {"active": {"1": {"agent": "one"}}}, True),
    ],
)
def test_a_state_holds_while_someone_works_or_a_turn_is_open(
    doc: state_machine.Doc, state: str, change: dict[str, Any], expected: bool
) -> None:
    doc["state"] = state
    doc["doflow"] |= change

    assert state_machine.never_expires(machine(), doc) is expected
    assert state_machine.never_expires(machine(expires=0.0), doc)


def test_a_move_to_the_first_state_by_hand_forgets_all_words_and_another_move_none(doc: state_machine.Doc) -> None:
    stop(doc, "one", "1", "words")
    state_machine.move_to(machine(), doc, "person", "C", "t3", "because")
    assert (doc["state"], doc["context"], doc["history"][-1]["reason"]) == ("C", {"found": "words"}, "because")

    state_machine.move_to(machine(), doc, "person", "A", "t4")

    assert (doc["state"], doc["context"], doc["doflow"]["kept"]) == ("A", {"found": ""}, {})


def test_a_refusal_names_who_may_run_and_a_prefix_counts() -> None:
    assert state_machine.refusal(machine(), "B", "helper") == ""
    assert (
        state_machine.refusal(machine(), "B", "one")
        == "the sub-agent one may not run in state B; allowed now: two, help*"
    )
