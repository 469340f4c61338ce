"""Waiting for an agent: how long, how often, and who does it instead."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.support.context import events, new_context, new_job, step_of

from doflow.agents import rate_limits
from doflow.flow.model import Outcome, Retry, Status
from doflow.util import timestamps
from doflow.util.process import runner

SETTINGS = """
    agents:
      default: {use: rehearsal, fallback: other}
      other: {use: rehearsal, fallback: last}
      last: {use: rehearsal}
      own: {use: rehearsal}
    rate_limit: {wait: 10m}
"""
FLOW = """
    one: {prompt: Write., makes: one.md}
    two: {prompt: Write., makes: two.md, fallback: own, retry: {attempts: 7, backoff: 1}}
    run: {kind: shell, run: "true"}
"""
SLEEP, STOPPING = rate_limits.sleep.__name__, runner.stopping.__name__


@pytest.fixture
def context(tmp_path):
    return new_context(tmp_path, FLOW, SETTINGS)


@pytest.fixture
def waited(monkeypatch):
    found = []
    monkeypatch.setattr(rate_limits, SLEEP, lambda seconds, tell=None: found.append(seconds) or True)
    return found


def soon(seconds):
    return timestamps.format_seconds(time.time() + seconds)


def limited(seconds=60.0):
    return Outcome(Status.RATE_LIMITED, "limit", resume_at=soon(seconds))


def test_whoever_may_do_a_step_is_asked_in_order_and_once(context):
    assert list(rate_limits.candidate_agents(step_of(context), context)) == ["default", "other", "last"]
    assert list(rate_limits.candidate_agents(step_of(context, "two"), context)) == ["default", "own"]


def test_an_agent_of_the_command_line_has_only_its_own_fallbacks(context):
    context.options = replace(context.options, agent="other")

    assert list(rate_limits.candidate_agents(step_of(context, "two"), context)) == ["other", "last"]


def test_the_first_who_is_free_stands_in_and_if_no_one_is_its_own_agent(context):
    step = step_of(context)
    assert rate_limits.available_agent(step, context) == "default"
    found = []
    for name in ("default", "other", "last"):
        context.limit_agent(name, soon(60))
        found.append(rate_limits.available_agent(step, context))

    assert found == ["other", "last", "default"]


def test_a_limit_ends_with_its_time(context):
    context.limit_agent("default", soon(-5))
    context.limit_agent("other", soon(60))

    assert [rate_limits.is_limited(name, context) for name in ("default", "other", "last")] == [False, True, False]
    assert rate_limits.refuse_if_limited(context.settings.profile("default"), context) is None
    assert rate_limits.refuse_if_limited(context.settings.profile("other"), context).status is Status.RATE_LIMITED


def test_someone_else_does_it_at_once(context, waited):
    context.limit_agent("default", soon(60))

    assert rate_limits.RateLimitWait(new_job(context), context).over(limited()) is None
    assert (waited, events(context)) == ([], ["warning"])


def test_when_no_one_is_free_it_waits_for_the_first(context, waited):
    for name, seconds in (("default", 300), ("other", 100), ("last", 200)):
        context.limit_agent(name, soon(seconds))

    assert rate_limits.RateLimitWait(new_job(context), context).over(limited()) is None
    assert waited == [pytest.approx(100, abs=3)]
    assert events(context) == ["waiting"]


def patience(context):
    for name in ("default", "other", "last"):
        context.limit_agent(name, "")
    context.settings = replace(context.settings, agents=(replace(context.settings.agents[0], fallback=""),))
    return rate_limits.RateLimitWait(new_job(context), context)


def test_waits_are_added_up_and_end_at_what_is_allowed(context, waited):
    found = patience(context)

    assert found.over(limited(400)) is None
    assert found.over(limited(400)).status is Status.RATE_LIMITED
    assert waited == [pytest.approx(400, abs=3)]


def test_who_names_a_near_moment_again_and_again_waits_longer(context, waited):
    found = patience(context)
    for _ in range(8):
        assert found.over(limited(-10)) is None

    assert waited == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_without_leave_to_wait_the_job_ends_as_it_did(context, waited):
    found = patience(context)
    context.settings = replace(context.settings, rate_limit_wait=0.0)
    outcome = limited()

    assert found.over(outcome) is outcome
    assert waited == []


def test_an_interrupted_wait_cancels_and_other_ends_are_left_alone(context, monkeypatch):
    monkeypatch.setattr(rate_limits, SLEEP, lambda seconds, tell=None: False)
    ended = Outcome(Status.FAILED, "no")

    assert patience(context).over(limited(5)).status is Status.CANCELLED
    assert patience(context).over(ended) is ended


def test_agents_are_tried_again_as_the_settings_say_and_commands_only_if_they_say_so(context):
    assert rate_limits.retry_policy(new_job(context), context) == context.settings.retry
    assert rate_limits.retry_policy(new_job(context, "two"), context) == Retry(7, 1)
    assert rate_limits.retry_policy(new_job(context, "run"), context) == Retry(0, 0)
    context.settings = replace(context.settings, retry_enabled=False)
    assert rate_limits.retry_policy(new_job(context, "two"), context) == Retry(0, 0)


@pytest.mark.parametrize(("attempt", "doubled"), [(1, 10), (2, 20), (3, 40)])
def test_each_wait_is_twice_the_one_before_give_or_take_a_quarter(attempt, doubled):
    found = [rate_limits.backoff_seconds(Retry(3, 10), attempt) for _ in range(50)]

    assert all(0.75 * doubled <= wait <= 1.25 * doubled for wait in found)
    assert len({*found}) > 1


def test_a_sleep_tells_what_is_left_and_ends_when_the_run_is_stopped(monkeypatch):
    told = []
    assert rate_limits.sleep(0.15, told.append)
    assert len(told) == 1
    monkeypatch.setattr(runner, STOPPING, lambda: True)
    assert not rate_limits.sleep(60)


def test_what_is_no_time_is_long_past():
    assert rate_limits.epoch_seconds("soon") == 0.0
    assert rate_limits.epoch_seconds("1970-01-01T00:01:00Z") == 60.0
