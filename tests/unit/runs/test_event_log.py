"""The event log: whole lines in order, durable where it matters, and no one else's words."""

from __future__ import annotations

import json
import os
import threading

import pytest

from doflow.runs import event_log
from doflow.runs.event_log import EventLog
from doflow.util import deferred
from doflow.util.errors import WorldError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "events.jsonl"


@pytest.fixture
def heard():
    return []


@pytest.fixture
def log(path, heard):
    path.parent.mkdir()
    made = EventLog(path, "001-login", heard.append)
    yield made
    made.close()


def names(path):
    return [entry["event"] for entry in event_log.read_events(path)]


def test_an_entry_is_one_line_with_its_time_and_run(log, path, heard):
    entry = log.add("step_starting", step="one", text="two\nlines")

    assert path.read_bytes().count(b"\n") == 1
    assert json.loads(path.read_text()) == entry == heard[0]
    assert list(entry) == ["event", "at", "run", "step", "text"]
    assert (entry["run"], entry["step"]) == ("001-login", "one")


def test_entries_come_back_in_order(log, path):
    for number in range(20):
        log.add("warning", number=number)

    assert [entry["number"] for entry in event_log.read_events(path)] == list(range(20))


def test_a_new_writer_goes_on_where_the_last_one_ended(log, path):
    log.add("run_started")
    log.close()
    again = EventLog(path, "001-login", lambda entry: None)
    again.add("paused")
    again.close()

    assert names(path) == ["run_started", "paused"]


def test_what_is_only_shown_is_heard_and_not_kept(log, path, heard):
    for event in sorted(event_log.SHOWN):
        log.add(event)

    assert [entry["event"] for entry in heard] == sorted(event_log.SHOWN)
    assert names(path) == []


def test_a_torn_last_line_is_dropped_and_never_joined_by_the_next(log, path):
    log.add("run_started")
    log.close()
    with path.open("ab") as stream:
        stream.write(b'{"event":"step_compl')
    again = EventLog(path, "001-login", lambda entry: None)
    again.add("paused")
    again.close()

    assert names(path) == ["run_started", "paused"]


@pytest.mark.parametrize("line", [b"nonsense", b'{"no": "event"}', b'["event"]', b"\xff\xfe", b"[" * 9999, b""])
def test_a_line_that_is_no_entry_is_skipped(path, line):
    path.parent.mkdir()
    path.write_bytes(b'{"event":"a"}\n' + line + b'\n{"event":"b"}\n')

    assert names(path) == ["a", "b"]


def test_no_log_is_no_entries_and_a_folder_in_its_place_an_error(path):
    assert names(path) == []
    path.mkdir(parents=True)
    with pytest.raises(WorldError):
        names(path)


def synced(monkeypatch, log, *args):
    """The events that were on the disk when `add` returned."""
    calls = []
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(fd))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append(fd))
    log.add(*args)
    return bool(calls)


@pytest.mark.parametrize("event", ["returned", "intent", "step_complete", "rejected", "rate_limited", "reset"])
def test_what_a_resume_needs_is_on_the_disk_at_once(monkeypatch, log, event):
    log.add("warning")

    assert synced(monkeypatch, log, event)


def test_other_events_and_steps_that_cost_nothing_wait_for_the_disk(monkeypatch, log):
    log.add("warning")

    assert not synced(monkeypatch, log, "warning")
    assert not synced(monkeypatch, log, "step_complete", False)
    assert not synced(monkeypatch, log, "step_complete", event_log.LATER)
    deferred.now()


def test_what_was_put_off_is_on_the_disk_before_what_is_durable(monkeypatch, log, path):
    order = []
    log.add("warning")
    deferred.later(lambda: order.append(len(names(path))))
    log.add("returned")

    assert order == [1]


def test_threads_share_a_log_and_lose_nothing(log, path):
    def work(name):
        for number in range(50):
            log.add("warning", name=name, number=number)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = [(entry["name"], entry["number"]) for entry in event_log.read_events(path)]
    assert len(found) == 200
    for name in "abcd":
        assert [number for other, number in found if other == name] == list(range(50))


def forge(path, data):
    with path.open("ab") as stream:
        stream.write(data)


def test_a_forged_line_is_taken_out_and_kept_aside(log, path):
    log.add("run_started")
    log.arm()
    log.add("step_starting")
    forge(path, b'{"event":"step_complete","step":"one"}\n')
    aside = []

    assert log.restore(lambda folder, name, shown: aside.append((name, path.read_bytes())) or "")
    log.add("error")

    assert names(path) == ["run_started", "step_starting", "error"]
    assert aside[0][0] == "events.jsonl"
    assert b"step_complete" in aside[0][1]
    assert not log.restore(lambda *args: "")


def test_a_forgery_before_our_next_line_is_found_too(log, path):
    log.add("run_started")
    log.arm()
    forge(path, b'{"event":"step_complete","step":"one"}\n')
    log.add("warning")

    assert log.restore(lambda *args: "")
    assert names(path) == ["run_started", "warning"]


def test_a_log_that_was_deleted_is_there_again(log, path):
    log.add("run_started")
    log.arm()
    path.unlink()

    assert log.restore(lambda *args: "")
    assert names(path) == ["run_started"]


def test_without_agents_at_work_nothing_is_taken_out(log, path):
    log.add("run_started")
    forge(path, b'{"event":"x"}\n')

    assert not log.restore(lambda *args: "")
    assert names(path) == ["run_started", "x"]


def test_the_log_of_this_process_is_known_as_long_as_it_is_open(log, path):
    log.add("run_started")

    assert event_log.is_being_written(str(path))
    log.close()
    assert not event_log.is_being_written(str(path))
