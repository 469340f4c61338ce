"""Gates, questions and routes: a yes counts for what it was said to, and nothing is passed by waiting."""

from __future__ import annotations

import pytest
from tests.support.context import AT, events, new_context, step_of, write

from doflow.engine.steps import gate
from doflow.flow.model import Status
from doflow.runs import fingerprint
from doflow.runs.lockfile import Approval, Artifact, StepRecord
from doflow.runs.run_record import AUTO

ONE = "specs/001-login/one.md"
FLOW = """
    one: {prompt: Write., makes: one.md, gate: Is it right?}
    look: {kind: gate, gate: Go on?, reads: [one.md]}
    wait: {kind: gate, gate: Go on?}
    ask: {prompt: Say., routes: [{when: GO, then: [last]}, {when: HALT, pause: Halted.}]}
    last: {prompt: Write., makes: last.md}
"""


@pytest.fixture
def context(tmp_path):
    write(tmp_path, ONE, "# One\n")
    return new_context(tmp_path, FLOW)


def approve(context, name="one"):
    context.record.approve(name, Approval(gate.shown_digest(step_of(context, name), context), "ann", "", AT))


def test_a_gate_pauses_and_asks_until_there_is_a_yes(context):
    step = step_of(context)
    assert [gate.ask_approval(step, context).status for _ in range(2)] == [Status.PAUSED] * 2
    assert events(context) == ["gate", "gate"]
    approve(context)

    assert gate.ask_approval(step, context).ok
    assert events(context) == ["gate", "gate"]


def test_a_yes_to_something_else_does_not_count(context):
    approve(context)
    assert gate.is_approved(step_of(context), context)
    write(context.root, ONE, "# Another\n")

    assert not gate.is_approved(step_of(context), context)


def test_a_gate_that_only_asks_is_about_what_it_reads(context):
    approve(context, "look")
    write(context.root, ONE, "# Another\n")

    assert not gate.is_approved(step_of(context, "look"), context)


def test_a_gate_without_files_is_about_what_was_done_before_it(context):
    context.complete("look", StepRecord("k1"), {})
    approve(context, "wait")
    assert gate.is_approved(step_of(context, "wait"), context)
    context.complete("look", StepRecord("k2"), {})

    assert not gate.is_approved(step_of(context, "wait"), context)


def test_ticked_boxes_of_a_task_list_are_not_another_content(tmp_path):
    path = "specs/001-login/tasks.md"
    write(tmp_path, path, "## Phase 1: A\n- [ ] [T001] a\n")
    flow = "tasks: {prompt: List., makes: tasks.md, gate: Right?}\ncode: {kind: implement, phases: tasks.md, prompt: Do.}\n"
    context = new_context(tmp_path, flow)
    approve(context, "tasks")
    write(tmp_path, path, "## Phase 1: A\n- [x] [T001] a\n")
    assert gate.is_approved(step_of(context, "tasks"), context)
    write(tmp_path, path, "## Phase 1: A\n- [x] [T001] b\n")

    assert not gate.is_approved(step_of(context, "tasks"), context)


def test_an_approval_over_all_bytes_as_0_1_0_recorded_it_holds_for_them(context):
    recorded = fingerprint.short_hash([[ONE, context.files.digest(ONE)]])
    context.record.approve("one", Approval(recorded, "ann", "", AT))

    assert gate.is_approved(step_of(context), context)


def test_a_review_that_changed_approved_content_ends_before_the_gate_asks(tmp_path):
    write(tmp_path, ONE, "# One\n")
    flow = (
        "one: {prompt: Write., makes: one.md, gate: Right?}\ncheck: {kind: review, reads: [one.md], personas: [ann]}\n"
    )
    write(tmp_path, "flows/prompts/personas/ann.md", "---\nabout: Ann.\n---\n\nYou are ann.\n")
    context = new_context(tmp_path, flow + "last: {prompt: Write., reads: [one.md], makes: last.md}\n")
    one = step_of(context)
    approve(context)
    write(tmp_path, ONE, "# Mended\n")
    context.record.add_artifacts({ONE: Artifact(context.files.digest(ONE), "check:fix1", "one")})

    assert gate.unfinished_reviser(one, context) == "check"
    assert [gate.open_gates(context, name) for name in ("check", "last", "")] == [(), (one,), (one,)]
    context.complete("check", StepRecord("k", at=AT), {})
    assert gate.unfinished_reviser(one, context) == ""
    assert gate.open_gates(context, "check") == (one,)


def test_the_settings_may_say_yes_and_that_is_written_down(tmp_path):
    write(tmp_path, ONE, "# One\n")
    context = new_context(tmp_path, FLOW, "auto_approve: true\n")

    assert gate.ask_approval(step_of(context), context).ok
    assert events(context) == ["approved"]
    assert (context.record.approvals["one"].by, context.record.uncommitted) == (AUTO, {"one"})


def test_the_commands_for_yes_and_no_are_named(context):
    commands = [step.command for step in gate.ask_approval(step_of(context), context).next]

    assert commands[0] == ("doflow", "approve", "one")
    assert commands[1][:3] == ("doflow", "reject", "one")
    assert commands[2] == ("doit", "tiny")
    assert gate.maker(step_of(context, "look"), context) == step_of(context)
    assert gate.maker(step_of(context, "wait"), context) is None


def test_open_questions_pause_and_are_counted(context):
    write(context.root, ONE, "# One\n\n[NEEDS CLARIFICATION: how many?]\n\n[NEEDS CLARIFICATION: who?]\n")
    outcome = gate.ask_questions(step_of(context), context)

    assert outcome.status is Status.PAUSED
    assert [path for path, _ in gate.open_questions(step_of(context), context)] == [ONE, ONE]
    assert events(context) == ["clarification"]
    write(context.root, ONE, "# One\n")
    assert gate.ask_questions(step_of(context), context).ok


@pytest.mark.parametrize(("marker", "status"), [("GO", Status.DONE), ("HALT", Status.PAUSED), ("", Status.FAILED)])
def test_a_route_goes_on_pauses_or_fails_and_never_passes_without_a_marker(context, marker, status):
    context.complete("ask", StepRecord("k", marker=marker), {})
    outcome, found = gate.route(step_of(context, "ask"), context)

    assert (outcome.status, found) == (status, marker)
    if marker == "HALT":
        assert outcome.next[0].command == ("doit", "tiny", "--force=ask")
