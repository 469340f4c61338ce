"""An entry of the event log that ended a run, told with the command that goes on from where we are."""

from __future__ import annotations

import pytest

from doflow.cli import next_command
from doflow.cli.next_command import Advice
from doflow.util.hints import Target

HERE = Target("tiny")
AWAY = Target("tiny", switch="001-a", options=("--agent=x",))
ADOPT = {"command": ["doflow", "adopt", "plan"], "does": "keeps your edits"}
FORCE = {"command": ["doit", "tiny", "--force=plan"], "link": "or"}


@pytest.mark.parametrize(
    ("target", "command"),
    [
        (HERE, "doflow adopt plan   keeps your edits   or   doit tiny --force=plan"),
        (
            AWAY,
            "git switch 001-a && doflow adopt plan   keeps your edits   or   "
            "git switch 001-a && doit tiny --force=plan --agent=x",
        ),
    ],
)
def test_the_commands_of_an_entry_are_completed_for_where_we_are(target, command):
    end = {"event": "paused", "message": "spec.md was edited", "hint": "as it was then", "next": [ADOPT, FORCE]}

    assert next_command.advice_for_event("plan", end, target) == Advice("plan: spec.md was edited", command)


def test_an_entry_without_a_command_that_goes_on_gets_it():
    end = {"event": "error", "message": "plan broke", "hint": "the log is x"}

    assert (
        next_command.advice_for_event("plan", end, AWAY).command
        == "the log is x   then: git switch 001-a && doit tiny --agent=x"
    )
    assert (
        next_command.advice_for_event("plan", {"event": "error", "message": "plan broke"}, HERE).command == "doit tiny"
    )


def test_the_time_of_a_rate_limit_is_said_once():
    end = {"event": "rate_limited", "message": "plan: limited", "resumeAt": "10:00"}
    timed = {**end, "next": [{"command": ["doit", "tiny"], "at": "10:00"}]}

    assert next_command.advice_for_event("plan", end, HERE) == Advice("plan: limited (try again at 10:00)", "doit tiny")
    assert next_command.advice_for_event("plan", timed, HERE) == Advice("plan: limited", "at 10:00 or later: doit tiny")


def test_the_hint_of_an_entry_that_0_1_0_wrote_is_shown_as_it_is():
    end = {"event": "paused", "message": "plan waits", "hint": "doflow adopt plan   then: doit tiny"}

    shown = next_command.advice_for_event("plan", end, AWAY).command

    assert shown == "doflow adopt plan   then: doit tiny   then: git switch 001-a && doit tiny --agent=x"
