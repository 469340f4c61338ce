"""What to do next is data: its text is made for where it is read."""

from __future__ import annotations

import pytest

from doflow.util import hints
from doflow.util.errors import WorldError
from doflow.util.hints import SAME_COMMAND, Next, Target

ADOPT = Next(("doflow", "adopt", "plan"), does="keeps your edits")
FORCE = Next(("doit", "tiny", "--force=plan"), does="regenerates it", link="or")
THEN = Next(("doit", "tiny"), link="then")


@pytest.mark.parametrize(
    ("advice", "steps", "shown"),
    [
        ("", (ADOPT, FORCE), "doflow adopt plan   keeps your edits   or   doit tiny --force=plan   regenerates it"),
        ("mend a.md", (THEN,), "mend a.md, then: doit tiny"),
        ("", (THEN,), "doit tiny"),
        ("the log is x", (), "the log is x"),
        ("the log is x", (Next(("doflow", "cost")),), "the log is x\n  doflow cost"),
        ("", (Next(why="raise it"), Next(("doit", "tiny"), "once", link="or")), "raise it   or once: doit tiny"),
        ("", (Next(("doit", "tiny"), at="10:00"),), "at 10:00 or later: doit tiny"),
        ("", (Next(("git", "switch", "b")), Next(("doit", "tiny"), link="&&")), "git switch b && doit tiny"),
        ("", (SAME_COMMAND,), "then the same command again"),
        ("free some space", (SAME_COMMAND,), "free some space   then the same command again"),
        ("", (Next(("doflow", "reject", "plan", "--note", "…")),), "doflow reject plan --note '…'"),
        ("", (Next(("doit", "tiny", "--goal=two words")),), "doit tiny --goal='two words'"),
    ],
)
def test_the_text_of_what_to_do_next(advice, steps, shown):
    assert hints.text(advice, steps) == shown


@pytest.mark.parametrize(
    ("target", "flow", "verb"),
    [
        (Target("tiny"), "doit tiny --force=plan", "doflow adopt plan"),
        (Target("tiny", options=("--agent=rehearsal",)), "doit tiny --force=plan --agent=rehearsal", "doflow adopt plan"),
        (Target("tiny", run="001-a"), "doit tiny --run=001-a --force=plan", "doflow adopt plan --run=001-a"),
        (Target("tiny", switch="b c"), "git switch 'b c' && doit tiny --force=plan", "git switch 'b c' && doflow adopt plan"),
        (
            Target("tiny", run="001-a", reopen=True, options=("--record",)),
            "doit tiny --run=001-a --reopen --force=plan --record",
            "doit tiny --run=001-a --reopen --record   and then   doflow adopt plan --run=001-a",
        ),
        (Target("tinyer", run="001-a"), "doit tiny --force=plan", "doflow adopt plan --run=001-a"),
    ],
)  # fmt: skip
def test_a_command_is_completed_for_the_run_it_is_about(target, flow, verb):
    assert hints.command_text(FORCE.command, target) == flow
    assert hints.command_text(ADOPT.command, target) == verb
    assert hints.command_text(("doflow", "quarantine", "list"), target) == "doflow quarantine list"


def test_an_option_that_a_command_names_itself_is_not_given_twice():
    target = Target("tiny", run="001-a", reopen=True, options=("--agent=x", "--budget=1"))

    shown = hints.command_text(("doit", "tiny", "--run=002-b", "--budget=2"), target)

    assert shown == "doit tiny --reopen --run=002-b --budget=2 --agent=x"


def test_only_a_command_of_doits_goes_on():
    assert hints.resumes((ADOPT, FORCE)) and hints.resumes((SAME_COMMAND,))
    assert not hints.resumes((ADOPT, Next(why="doit tiny")))
    assert not hints.resumes(())


def test_what_the_event_log_keeps_is_read_back():
    steps = (ADOPT, FORCE, THEN, Next(why="raise it"), Next(("doit", "tiny"), at="10:00"))

    assert [step.entry() for step in steps[1:3]] == [
        {"command": ["doit", "tiny", "--force=plan"], "does": "regenerates it", "link": "or"},
        {"command": ["doit", "tiny"], "link": "then"},
    ]
    assert hints.from_entries([step.entry() for step in steps]) == steps


@pytest.mark.parametrize("entries", [None, "doit tiny", [None, 3], {}])
def test_an_entry_without_commands_gives_none(entries):
    assert hints.from_entries(entries) == ()


def test_an_error_has_its_hint_as_text_and_as_data():
    error = WorldError("it broke", "look", (THEN,))

    assert (error.advice, error.next, error.hint) == ("look", (THEN,), "look, then: doit tiny")
    assert str(error) == "it broke\n  hint: look, then: doit tiny"
