"""Which session `doit prd` means, in each of the five states of sessions and requirements."""

from __future__ import annotations

import pytest

from doflow.engine.lifecycle import resolve_run
from doflow.flow.model import Flow, Param
from doflow.runs import catalogue
from doflow.runs.catalogue import Run, RunRequest
from doflow.util.errors import Undecided, UsageError

FLOW = Flow(
    "prd",
    params=(
        Param("goal", file="{prd}"),
        Param("prd", default="PRD.md"),
        Param("finder", default="glp", env="BUG_FINDER_AGENT"),
    ),
    layout="plan",
)


def session(number, text, folder="plan"):
    name = f"{number:03d}_0123456789ab"
    return Run(name, "prd", f"{folder}/{name}", text, catalogue.digest(text), name)


FIRST, SECOND = session(1, "old"), session(2, "newer")


def chosen(known, text, done=(), **wish):
    return resolve_run.choose_session(
        known, FLOW, RunRequest(text, **wish), "main", frozenset(run.name for run in done), str
    )


def test_without_a_session_a_new_one_begins():
    assert chosen((), "old") is None


@pytest.mark.parametrize("done", [(), (FIRST,)])
def test_for_the_same_requirements_the_last_session_is_meant_whether_it_is_done_or_not(done):
    assert chosen((FIRST,), "old", done) is FIRST


def test_for_changed_requirements_a_finished_session_is_followed_by_a_new_one():
    assert chosen((FIRST,), "new", (FIRST,)) is None


def test_for_changed_requirements_an_unfinished_session_is_a_persons_to_decide():
    with pytest.raises(Undecided) as told:
        chosen((FIRST,), "new")

    assert "PRD.md changed since session 001_0123456789ab started" in told.value.message
    assert ("--run=001_0123456789ab" in told.value.hint, "--new" in told.value.hint) == (True, True)


def test_requirements_that_went_back_to_an_older_text_are_a_change_too():
    assert chosen((FIRST, SECOND), "old", (FIRST, SECOND)) is None


def test_the_last_session_is_the_one_with_the_highest_number():
    thousandth, ninth = session(1000, "late"), session(999, "early")

    assert chosen((thousandth, ninth), "late") is thousandth


def test_a_bug_fix_session_is_never_meant_unless_it_is_named():
    child = session(1, "bugs", f"{FIRST.dir}/bugfix")

    assert chosen((FIRST, child), "old") is FIRST
    assert chosen((FIRST, child), None, feature_dir=child.dir) is child


def test_a_new_session_knows_the_one_that_it_goes_on_from(tmp_path):
    (tmp_path / FIRST.dir).mkdir(parents=True)
    (tmp_path / FIRST.dir / "prd_snapshot.md").write_text("old")

    assert resolve_run.request_session((FIRST,), FLOW, RunRequest("new"), tmp_path).params == {"previous": FIRST.dir}
    assert resolve_run.request_session((FIRST,), FLOW, RunRequest("old"), tmp_path).params == {}
    assert resolve_run.request_session((), FLOW, RunRequest("new"), tmp_path).params == {}


def test_a_session_that_lies_on_another_branch_cannot_be_gone_on_from(tmp_path):
    with pytest.raises(UsageError) as told:
        resolve_run.request_session((FIRST,), FLOW, RunRequest("new"), tmp_path)

    assert told.value.hint.startswith(f"git switch {FIRST.branch}")


def test_the_goal_is_the_text_of_its_file_and_params_come_from_the_environment(tmp_path):
    (tmp_path / "PRD.md").write_bytes(b"# Wanted\r\n\xff")

    found = resolve_run.complete_request(RunRequest(), FLOW, {"BUG_FINDER_AGENT": "mine"}, tmp_path)

    assert (found.goal, found.params) == ("# Wanted\r\n\udcff", {"finder": "mine"})
    assert resolve_run.complete_request(
        RunRequest(params={"finder": "x"}), FLOW, {"BUG_FINDER_AGENT": "mine"}, tmp_path
    ).params == {"finder": "x"}
    assert resolve_run.complete_request(RunRequest(run="1"), FLOW, {}, tmp_path).goal is None
    assert resolve_run.complete_request(RunRequest("said"), FLOW, {}, tmp_path).goal == "said"


def test_a_file_outside_of_the_project_is_refused(tmp_path):
    with pytest.raises(UsageError):
        resolve_run.complete_request(RunRequest(params={"prd": "../secret.md"}), FLOW, {}, tmp_path)


@pytest.mark.parametrize(
    ("text", "bare", "shown"),
    [
        ("#232", "232", "#232"),
        (" 232 ", "232", "#232"),
        ("# 232", "232", "#232"),
        ("ABC-7", "abc-7", "ABC-7"),
        ("none", "", "none"),
        (" NONE ", "", "none"),
        ("", None, "none"),
        ("#", None, "none"),
    ],
)
def test_an_issue_in_every_dress(text, bare, shown):
    assert (catalogue.bare_issue(text), catalogue.format_issue(text)) == (bare, shown)
