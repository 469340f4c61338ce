"""How a job ends short of success: what to do next, and what the event log is told of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from doflow.engine.jobs import outcomes
from doflow.flow.model import Outcome, Status, Step
from doflow.runs.fingerprint import Key
from doflow.runs.jobs import Job
from doflow.util.hints import Next, Target

RESUME = ("doit", "tiny")
AT = "2026-01-01T10:00:00Z"


class Log:
    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, event: str, **data: Any) -> None:
        self.entries.append({"event": event, **data})


@pytest.fixture
def context() -> Any:
    book = SimpleNamespace(hold_files=lambda files: None, artifacts={})
    target = Target("tiny", options=("--agent=x",))
    return SimpleNamespace(flow=SimpleNamespace(name="tiny"), target=target, events=Log(), record=book)


@pytest.fixture
def job() -> Job:
    return Job(Step("plan"), Key("k", {}, {}))


def test_an_edit_in_the_way_can_be_kept_or_rebuilt(job, context):
    outcome = outcomes.edits_in_the_way(job, context, ("plan.md",))

    assert outcome.status is Status.PAUSED
    assert [step.command for step in outcome.next] == [("doflow", "adopt", "plan"), (*RESUME, "--force=plan")]
    assert (outcome.next[0].link, outcome.next[1].link, outcome.hint) == ("", "or", "")


def test_a_rate_limit_gets_the_command_with_its_time_once(context):
    limited = Outcome(
        Status.RATE_LIMITED, "limited", resume_at=AT, next=(Next(("doflow", "logs", "plan")), Next(RESUME))
    )

    once = outcomes.with_resume_time(limited, context)

    assert once.next == (Next(RESUME, at=AT), Next(("doflow", "logs", "plan")))
    assert outcomes.with_resume_time(once, context) is once


def test_words_about_a_later_time_do_not_stand_for_the_command(context):
    limited = Outcome(Status.RATE_LIMITED, "limited", "today or later: who knows", resume_at=AT)

    assert outcomes.with_resume_time(limited, context).next == (Next(RESUME, at=AT),)


@pytest.mark.parametrize("status", [Status.FAILED, Status.PAUSED, Status.CANCELLED])
def test_only_a_rate_limit_has_a_time(status, context):
    outcome = Outcome(status, "no")

    assert outcomes.with_resume_time(outcome, context) is outcome


def test_what_an_attempt_left_is_named_with_where_it_is_kept():
    outcome = outcomes.with_leftovers(Outcome(Status.FAILED, "no", "look"), ("a", "b", "c", "d"))

    assert outcome.next == (Next(outcomes.QUARANTINE, "what it left (a, b, c …) is in quarantine"),)
    assert outcomes.with_leftovers(outcome, ()) is outcome


def test_the_event_log_keeps_the_text_for_people_and_the_commands_for_programs(job, context):
    outcomes.log_outcome(job, context, Outcome(Status.PAUSED, "waits", "look", next=(Next(RESUME, link="then"),)))

    assert context.events.entries == [{
        "event": "paused", "step": "plan", "message": "waits", "hint": "look, then: doit tiny --agent=x",
        "advice": "look", "next": [{"command": ["doit", "tiny"], "link": "then"}],
    }]  # fmt: skip


def test_an_outcome_with_advice_alone_is_kept_as_it_was_in_0_1_0(job, context):
    outcomes.log_outcome(job, context, Outcome(Status.FAILED, "broke", "the log is x"))

    assert context.events.entries == [{
        "event": "error", "step": "plan", "message": "broke", "hint": "the log is x", "status": "failed", "held": False,
        "kept": {},
    }]  # fmt: skip
