"""The record of a run: what its methods do, and what its lock and its event log say together."""

from __future__ import annotations

import json

import pytest
from tests.support.context import AT

from doflow.runs import run_record
from doflow.runs.catalogue import Run
from doflow.runs.lockfile import Approval, Artifact, Lock, StepRecord
from doflow.runs.run_record import RunRecord

RUN = Run("001-login", "tiny", "specs/001-login", "Log in", "9f86", "001-login", "#7", {"size": "big"})
EARLIER, LATER = "2026-01-01T09:00:00Z", "2026-01-01T11:00:00Z"


@pytest.fixture
def record():
    return RunRecord(RUN)


def loaded(*entries, lock=None, alone=None):
    made = RunRecord(RUN)
    if lock is not None:
        made.load_lock(lock)
    made.load_events([{"at": AT, **entry} for entry in entries], lock is None if alone is None else alone)
    return made


def entry(event, step="one", **more):
    return {"event": event, "step": step, **more}


# what happens to a run


def test_a_lock_is_made_of_the_run_and_all_that_is_known(record):
    record.complete("one", StepRecord("k", marker="GO"), {"a": Artifact("1", "agent", "one")})
    record.approve("one", Approval("1"))
    record.reject("two", "No.")
    record.choose_variant("lite")

    assert record.lock == Lock(
        "001-login", "tiny", "9f86", "001-login", "#7", "lite", {"one": StepRecord("k", marker="GO")},
        {"a": Artifact("1", "agent", "one")}, {"one": Approval("1")}, {"two": "No."}, {"size": "big"},
    )  # fmt: skip
    assert record.markers == {"one": "GO"}


def test_no_one_changes_the_record_but_its_methods(record):
    for view in (record.steps, record.artifacts, record.approvals, record.notes, record.returned, record.spent):
        with pytest.raises(TypeError):
            view["x"] = 1


def test_a_settled_job_is_not_pending_in_any_way():
    found = loaded(entry("step_starting"), entry("returned"), entry("intent"), entry("step_starting", "two"))
    found.settle("one")

    assert (list(found.started), dict(found.returned), dict(found.intents)) == (["two"], {}, {})


def test_a_step_that_is_removed_keeps_its_review_a_forgotten_one_does_not(record):
    for name in ("one", "two"):
        record.complete(name, StepRecord("k"), {name: Artifact("1", "agent", name)})
        record.mark_uncommitted(name)
        record.add_review_entry(entry("review_started", name))
    record.remove_step("one")
    record.forget_step("two")

    assert dict(record.steps) == {}
    assert [len(record.review(name)) for name in ("one", "two")] == [1, 0]
    assert record.uncommitted == {"one"}
    assert list(record.artifacts) == ["one", "two"]


def test_everything_done_can_be_forgotten_at_once(record):
    record.complete("one", StepRecord("k"), {"a": Artifact("1", "agent")})
    record.mark_uncommitted("one")
    record.approve("one", Approval("1"))
    record.reject("two", "No.")
    record.forget_everything_done()

    assert (dict(record.steps), dict(record.approvals), record.uncommitted) == ({}, {}, frozenset())
    assert dict(record.notes) == {"two": "No."}


def test_a_commit_holds_everything_that_waited_for_it(record):
    record.mark_uncommitted("one", "two")
    record.mark_committed()

    assert record.uncommitted == frozenset()


def test_a_no_takes_a_yes_back(record):
    record.approve("one", Approval("1"))
    record.reject("one", "Not so.")

    assert (dict(record.approvals), dict(record.notes)) == ({}, {"one": "Not so."})
    assert not record.withdraw_approval("one")
    record.approve("one", Approval("2"))
    assert record.withdraw_approval("one")
    record.remove_note("one")
    assert dict(record.notes) == {}


def test_a_returned_result_can_be_given_up(record):
    record.agent_returned("one", {"files": {"a": "1"}})

    assert record.discard_returned("one") == {"files": {"a": "1"}}
    assert record.discard_returned("one") == {}


def test_smaller_facts_are_kept(record):
    record.hold_files({"a": "1"})
    record.add_command_outputs({"b": "2"})
    record.add_artifacts({"c": Artifact("3", "person")})
    record.choose_options({"agent": "x"})
    record.lift_budget()
    record.set_log_number("one", 3)
    record.replace_run(Run("002", "tiny", "specs/002"))

    assert (record.held_files, record.command_outputs) == ({"a": "1"}, {"b": "2"})
    assert record.artifacts["c"].author == "person"
    assert (record.options, record.budget_lifted, record.log_number("one")) == ({"agent": "x"}, True, 3)
    assert record.log_number("two") is None
    assert record.lock.run == "002"


def test_a_retry_keeps_what_is_shown_of_it(record):
    record.add_retry(entry("retry", attempt=1, reason="net", at=AT, wait=3))

    assert record.retries == ({"step": "one", "attempt": 1, "reason": "net", "at": AT},)


# calls


def test_a_call_is_open_until_it_ends_and_counts_for_its_step(record):
    record.start_call(entry("call_starting", log="1.log"))
    record.start_call(entry("call_starting", log="2.log"))
    record.end_call(entry("call_ended", "one:2", log="1.log", usd=0.5, status="done", **{"in": 10, "out": 2}))

    assert list(record.open_calls) == ["2.log"]
    assert (record.spent["one"].usd, record.spent["one"].tokens, record.spent["one"].calls) == (0.5, 12, 1)


def test_a_limit_that_a_person_sets_accepts_calls_that_did_not_tell():
    silent = entry("call_ended", log="1.log", status="done")

    assert loaded(silent).spent["one"].silent == 1
    assert loaded(silent, {"event": "warning", "accepted": True}).spent["one"].silent == 0
    assert loaded(silent, {"event": "warning"}).spent["one"].silent == 1


def test_calls_of_earlier_processes_are_read_back():
    found = loaded(entry("call_starting", log="1.log"), entry("call_starting", log="2.log"),
                   entry("call_ended", log="1.log", usd=1.0, **{"in": 1, "out": 1}))  # fmt: skip

    assert list(found.open_calls) == ["2.log"]
    assert found.spent["one"].usd == 1.0


# reading back: jobs


def test_a_job_without_an_end_was_started_and_its_attempts_are_counted():
    found = loaded(entry("step_starting"), entry("step_starting"), entry("phase_starting", "implement", phase="2"))

    assert list(found.started) == ["one", "implement:2"]
    assert (found.attempts("one"), found.attempts("implement:2"), found.attempts("two")) == (2, 1, None)


@pytest.mark.parametrize("event", ["stopped", "step_complete", "error", "reset", "adopted"])
def test_every_end_settles_a_job(event):
    found = loaded(entry("step_starting"), entry("returned"), entry("intent"), entry(event))

    assert (dict(found.started), dict(found.returned), dict(found.intents)) == ({}, {}, {})


@pytest.mark.parametrize("event", ["paused", "rate_limited", "warning", "gate"])
def test_a_pause_is_no_end(event):
    found = loaded(entry("step_starting"), entry("returned"), entry(event))

    assert (list(found.started), list(found.returned)) == (["one"], ["one"])


def test_a_result_is_dropped_by_a_new_start_and_kept_by_one_that_resumes_it():
    assert list(loaded(entry("returned"), entry("step_starting")).returned) == []
    assert list(loaded(entry("returned"), entry("step_starting", again=True)).returned) == ["one"]


def test_a_new_result_takes_the_intent_of_the_old_one_back():
    found = loaded(entry("returned"), entry("intent"), entry("returned", session="s"))

    assert dict(found.intents) == {}
    assert found.sessions["one"]["session"] == "s"


@pytest.mark.parametrize("event", ["error", "stopped"])
def test_a_result_that_is_held_stays_and_is_not_paid_again(event):
    assert list(loaded(entry("returned"), entry(event, held=True)).returned) == ["one"]
    assert list(loaded(entry("returned"), entry(event, held=False)).returned) == []


def test_files_of_a_refused_attempt_wait_for_a_person():
    found = loaded(entry("step_starting"), entry("error", held=True, kept={"a": "1"}))

    assert (dict(found.held_files), dict(found.started)) == ({"a": "1"}, {})


def test_what_commands_left_and_which_options_held_are_read_back():
    found = loaded(entry("left", files={"a": "1"}), {"event": "options", "agent": "x"}, entry("retry", attempt=1))

    assert dict(found.command_outputs) == {"a": "1"}
    assert found.options["agent"] == "x"
    assert found.retries == ({"step": "one", "attempt": 1, "at": AT},)


def test_the_last_event_is_the_last_that_is_kept():
    assert loaded(entry("paused"), {"event": "heartbeat"}).last_event["event"] == "paused"


# reading back: records


def complete(step="one", at=LATER, **more):
    return entry("step_complete", step, record={"key": "log", "made": {"a": "1"}, "at": at}, **more)


def test_a_committed_step_is_the_locks_to_tell():
    lock = Lock("r", "f", steps={"one": StepRecord("lock", at=AT)})

    assert loaded(complete(), lock=lock).steps["one"].key == "lock"
    assert loaded(complete(), lock=Lock("r", "f")).steps == {}


def test_a_step_without_a_commit_is_taken_from_the_log_if_it_is_newer():
    lock = Lock("r", "f", steps={"one": StepRecord("lock", at=AT)})
    newer, older = loaded(complete(loose=True), lock=lock), loaded(complete(at=EARLIER, loose=True), lock=lock)

    assert (newer.steps["one"].key, newer.uncommitted) == ("log", {"one"})
    assert (older.steps["one"].key, older.uncommitted) == ("lock", frozenset())
    assert newer.artifacts == {"a": Artifact("1", "agent", "one")}


def test_without_a_lock_the_log_tells_everything():
    assert loaded(complete()).steps["one"].key == "log"


def test_the_keys_of_a_phase_are_all_remembered():
    entries = [
        {"event": "phase_complete", "step": "implement", "phase": "1", "record": {"key": key, "at": AT}} for key in "ab"
    ]

    assert loaded(*entries, lock=Lock("r", "f")).phase_keys("implement:1") == {"a", "b"}
    assert loaded(entry("step_complete", record="torn")).steps == {}


def test_a_reset_forgets_what_no_commit_holds():
    lock = Lock("r", "f", steps={"two": StepRecord("lock", at=AT)})
    found = loaded(complete(loose=True), entry("reset"), entry("reset", "two"), lock=lock)

    assert list(found.steps) == ["two"]
    assert found.uncommitted == frozenset()


def test_a_reset_forgets_a_review_and_a_new_start_of_one_the_one_before():
    heard = [entry("review_started"), entry("review_answer", persona="ann"), entry("review_fixed")]

    assert len(loaded(*heard).review("one")) == 3
    assert len(loaded(*heard, entry("reset")).review("one")) == 0
    assert len(loaded(*heard, entry("review_started")).review("one")) == 1


def test_a_new_review_does_not_go_on_with_a_killed_fixer():
    found = loaded(entry("step_starting", phase="fix1"), entry("returned", phase="fix1"), entry("review_started"))

    assert (dict(found.started), dict(found.returned)) == ({}, {})


# reading back: decisions


def approved(by=run_record.AUTO, shown="1", at=LATER, step="one"):
    return entry("approved", step, by=by, shown=shown, at=at)


def test_an_approval_of_the_settings_is_taken_from_the_log():
    found = loaded(approved(), lock=Lock("r", "f"))

    assert found.approvals["one"] == Approval("1", run_record.AUTO, "", LATER)
    assert found.uncommitted == {"one"}


def test_an_approval_of_a_person_is_the_locks_to_tell_as_long_as_there_is_one():
    assert loaded(approved("ann"), lock=Lock("r", "f")).approvals == {}
    assert loaded(approved("ann")).approvals["one"].by == "ann"


@pytest.mark.parametrize("event", ["gate", "rejected", "reset"])
def test_an_approval_ends_when_it_is_asked_again_or_taken_back(event):
    assert loaded(approved(), entry(event, "one"), lock=Lock("r", "f")).approvals == {}
    assert loaded(approved(), entry(event, "two"), lock=Lock("r", "f")).approvals != {}


def test_the_gate_behind_a_step_belongs_to_it():
    assert loaded(approved(), entry("gate", "one.gate"), lock=Lock("r", "f")).approvals == {}


@pytest.mark.parametrize(("at", "shown", "expected"), [(LATER, "2", "2"), (EARLIER, "2", "1"), (LATER, "1", "1")])
def test_of_two_approvals_the_later_one_to_something_else_counts(at, shown, expected):
    lock = Lock("r", "f", approvals={"one": Approval("1", "ann", "", AT)})
    found = loaded(approved(shown=shown, at=at), lock=lock)

    assert found.approvals["one"].digest == expected
    assert bool(found.uncommitted) == (expected == "2")


def test_without_a_lock_notes_come_from_the_log():
    assert loaded(entry("rejected", note="No.")).notes == {"one": "No."}
    assert loaded(entry("rejected", note="No."), entry("adopted")).notes == {}
    assert loaded(entry("rejected", note="No."), lock=Lock("r", "f")).notes == {}


def test_a_record_is_loaded_from_its_files(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"at": AT, **complete(loose=True)}) + "\n")
    lock = Lock("r", "f", variant="lite", notes={"two": "No."}, steps={"two": StepRecord("lock")})
    found = run_record.load_record(RUN, lock, path)

    assert (list(found.steps), found.variant, dict(found.notes)) == (["two", "one"], "lite", {"two": "No."})
    assert list(run_record.load_record(RUN, None, tmp_path / "none").steps) == []
