"""Is every case driven through a real run with every CLI? The table of the cases; it fails when one is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.agents import test_cli_runs, test_cli_trees, test_failures, test_probe, test_usage_and_budget
from tests.support.clis import PROGRAMS

ALL = tuple(PROGRAMS)
#: what cannot be had from a CLI, and why, is said where it is tested
CASES: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "write, shell, final text, resume": (
        test_cli_runs.test_a_cli_writes_runs_a_shell_answers_and_goes_on_in_its_session, ALL,
    ),
    "a session that is gone": (
        test_cli_runs.test_a_session_that_was_deleted_is_replaced_by_one_that_is_told_everything, ALL,
    ),
    "401": (test_failures.test_a_wrong_key_ends_the_run_at_once, ALL),
    "429 with a time": (test_failures.test_a_limit_with_a_time_stops_the_run_until_then, ALL),
    "429 without a time": (test_failures.test_a_limit_without_a_time_stops_the_run_for_an_hour, ALL),
    "429, then well": (test_failures.test_a_limit_that_passes_by_itself_is_no_limit, ALL),
    "overloaded": (test_failures.test_an_overloaded_server_is_tried_again, ALL),
    "hang": (test_failures.test_a_model_that_hangs_is_stopped_by_the_watchdog, ALL),
    "garbage": (test_failures.test_garbage_is_an_error_and_no_answer, ALL),
    "refused": (test_failures.test_a_write_outside_of_the_project_is_refused_and_the_step_is_not_done, ALL),
    "refused by our hook": (
        test_failures.test_what_our_hook_refused_is_named_when_the_artifact_is_missing, ("claude", "codex"),
    ),
    "tree after a timeout": (test_cli_trees.test_nothing_is_left_after_a_timeout, ALL),
    "tree after ^C, kill -9": (
        test_cli_trees.test_nothing_is_left_after_an_interrupt_or_the_death_of_doflow, ALL,
    ),
    "usage of a stopped call": (
        test_usage_and_budget.test_what_a_stopped_call_used_is_unknown_and_never_nothing, ("codex", "gemini"),
    ),
    "probe": (test_probe.test_the_version_that_is_tried_knows_every_flag_and_answers, ALL),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_driven_with_every_cli_that_can_have_it(case: str) -> None:
    test, expected = CASES[case]
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize" and mark.args[0] == "name"]

    (mark,) = marks
    assert {param.values[0] for param in mark.args[1]} == set(expected)
