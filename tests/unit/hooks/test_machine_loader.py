"""Are machines read strictly, and is what they promise proved before anybody relies on it?"""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import pytest

from doflow.cli.commands import machine as machine_command
from doflow.flow import diagram
from doflow.hooks import machine_loader, state_machine
from doflow.util.errors import FlowError, UsageError

GOOD = """\
    machine: good
    start: A
    complete: Z
    stages: [A, B, C]
    groups: {helpers: [Explore, Plan], workers: [bash-*]}
    states:
      A: {allow: [one], on_stop: {one: B}}
      B: {allow: [two, helpers], on_stop: {two: C}}
      C: {allow: [workers, helpers], on_stop: {workers: C}}
      Z: {allow: [one], on_stop: {one: B}}
"""


def loaded(tmp_path: Path, text: str, name: str = "good") -> state_machine.Machine:
    path = tmp_path / "flows" / "machines" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return machine_loader.load_machine(tmp_path, name)


def problems(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(FlowError) as caught:
        loaded(tmp_path, text)
    return str(caught.value)


def test_groups_and_prefixes_are_expanded(tmp_path: Path) -> None:
    machine = loaded(tmp_path, GOOD)

    assert list(machine["states"]["C"]["allow"]) == ["bash-*", "Explore", "Plan"]
    assert machine["states"]["C"]["on_stop"] == {"bash-*": "C"}
    assert (machine["expires"], machine["history"], machine["context"]) == (0.0, 1000, {})


def test_an_own_name_comes_before_a_prefix_and_a_longer_prefix_before_a_shorter_one() -> None:
    table = {"a-*": 1, "a-b*": 2, "a-bc": 3, "*": 0}

    assert [state_machine.lookup(table, name) for name in ("a-x", "a-bx", "a-bc", "zzz", "a-*")] == [1, 2, 3, 0, 1]
    assert state_machine.lookup({"a-*": 1}, "b-a-") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("two: C}", "two: B}"), "no sequence of allowed calls reaches C"),
        (("on_stop: {one: B}}\n      B", "on_stop: {one: C}}\n      B"), "C can be reached without B: one"),
        (("B: {allow: [two, helpers]", "B: {allow: [two, workers]"), "B allows bash-*, so bash-* could run before its stage C"),
        (("A: {allow: [one]", "A: {allow: [one, two]"), "A allows two, so two could run before its stage B"),
        (("A: {allow: [one]", 'A: {allow: [one, "t*"]'), "A allows t*, so two could run before its stage B"),
        (("B: {allow: [two, helpers]", "B: {allow: [two, bash-expert]"), "B allows bash-expert, so bash-* could run before its stage C"),
        (("{two: C}", "{three: C}"), "B has a move for three, but doesn't allow it"),
        (("{two: C}", "{two: D}"), "unknown state 'D'"),
        (("complete: Z", "complete: Y"), "unknown state 'Y'"),
        (("stages: [A, B, C]", "stages: [A, X]"), "unknown state 'X'"),
        (("Plan]", "'*-plan']"), "'*-plan' isn't an agent name or prefix"),
        (("machine: good", "machine: other"), "the machine's name differs from the file name"),
        (("start: A", "start: A\n    begin: B"), "unknown key 'begin'"),
        (("start: A", "expires: soon"), "'soon' is not a duration"),
        (("on_stop: {workers: C}", "on_end: {workers: C}"), "unknown key 'on_end'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    told = problems(tmp_path, change)

    assert words in told
    assert "flows/machines/good.yaml:" in told and "hint:" in told


def test_a_detour_that_leads_around_a_stage_is_found(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        ("A: {allow: [one], on_stop: {one: B}}", "A: {allow: [one, side], on_stop: {one: B, side: S}}"),
        ("      Z:", "      S: {allow: [jump], on_stop: {jump: C}}\n      Z:"),
    )

    assert "C can be reached without B: side -> jump" in told


def test_no_sequence_of_allowed_calls_of_the_packaged_machine_skips_a_stage(tmp_path: Path) -> None:
    """R3.22, by brute force beside the proof: every sequence of six calls, allowed ones done, forbidden ones refused."""
    machine = machine_loader.load_machine(tmp_path, "context-first")
    agents = ("context-gatherer", "context-refiner", "strategic-orchestrator", "bash-x", "Explore")
    for calls in itertools.product(agents, repeat=6):
        doc = state_machine.new_document(machine, "", "", "")
        done: list[str] = []
        for number, agent in enumerate(calls):
            if not state_machine.refusal(machine, doc["state"], agent):
                done.append(agent)
                state_machine.agent_stopped(machine, doc, agent, str(number), "", "")
        firsts = [done.index(agent) for agent in agents[:4] if agent in done]
        assert firsts == sorted(firsts) and [a for a in agents[:4] if a in done] == list(agents[: len(firsts)]), done
    assert list(machine_loader.machine_problems(machine)) == []


def test_a_transition_on_start_lets_the_next_stage_begin_while_the_agent_works(tmp_path: Path) -> None:
    machine = loaded(
        tmp_path,
        GOOD.replace("B: {allow: [two, helpers], on_stop: {two: C}}", "B: {allow: [two, helpers], on_start: {two: C}}"),
    )
    doc = state_machine.new_document(machine, "", "", "") | {"state": "B"}

    state_machine.agent_started(machine, doc, "two", "t1", "now")

    assert (doc["state"], state_machine.refusal(machine, "C", "bash-x")) == ("C", "")
    assert [(e["agent"], e["state_after"]) for e in doc["history"]] == [("two", "C")]
    state_machine.agent_stopped(machine, doc, "two", "t1", "", "later")
    assert (doc["state"], len(doc["history"])) == ("C", 1)


def test_one_more_language_is_one_more_word_in_one_file(tmp_path: Path) -> None:
    """R3.66."""
    shipped = machine_loader.machine_paths(tmp_path, "context-first")[1].read_text()

    mine = loaded(tmp_path, shipped.replace("c-*]", "c-*, rust-*]"), "context-first")

    assert state_machine.refusal(mine, "EXECUTING", "rust-worker") == ""
    assert all(
        state_machine.refusal(mine, state, "rust-worker") for state in ("IDLE", "GATHERING", "REFINING", "COMPLETE")
    )


def test_one_more_state_is_an_edit_of_one_file(tmp_path: Path) -> None:
    """R3.67."""
    shipped = machine_loader.machine_paths(tmp_path, "context-first")[1].read_text()
    text = shipped.replace("EXECUTING]", "TESTING, EXECUTING]").replace(
        "orchestrator: EXECUTING}", "orchestrator: TESTING}"
    )
    text = text.replace(
        "  EXECUTING:\n", "  TESTING: {allow: [tester], on_stop: {tester: EXECUTING}}\n  EXECUTING:\n", 1
    )

    mine = loaded(tmp_path, text, "context-first")

    assert machine_loader.reachable_states(mine)["EXECUTING"] == [
        "context-gatherer",
        "context-refiner",
        "strategic-orchestrator",
        "tester",
    ]


@pytest.mark.parametrize("name", ["nothing", "../secret", "A", ""])
def test_a_machine_that_is_not_there_is_an_error_in_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        machine_loader.load_machine(tmp_path, name)

    assert caught.value.hint


@pytest.mark.parametrize("form", diagram.FORMATS)
def test_a_machine_is_drawn_with_the_current_position(form: str, tmp_path: Path) -> None:
    """R3.84."""
    machine = machine_loader.load_machine(tmp_path, "context-first")

    drawn, other = (
        machine_command.draw_machine(machine, "REFINING", form),
        machine_command.draw_machine(machine, "", form),
    )

    assert all(state in drawn for state in machine["states"])
    assert drawn != other
    mark = {"text": " -> REFINING ", "mermaid": "style n2 ", "dot": "REFINING (here)", "svg": "REFINING (here)"}[form]
    assert mark in drawn and mark not in other
