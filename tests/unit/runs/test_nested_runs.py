"""The guard against a run inside a run, rule by rule (R0.2 to R0.15)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from doflow.runs import mutex
from doflow.runs.mutex import Holder, NestedExecutionError, validate_nested_execution

SESSION = "plan/001_0123456789ab/bugfix/001_ba9876543210"
MAIN = "plan/001_0123456789ab"
MESSAGE = "Nested PRP Pipeline execution detected. Only bug fix sessions can recurse. PID: {}"


@pytest.fixture
def running():
    """A process that is alive for as long as the test: the run that is already there."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield str(other.pid)
    other.communicate()


@pytest.fixture
def gone():
    other = subprocess.Popen([sys.executable, "-c", ""])
    other.wait()
    return str(other.pid)


def refused(path, **environ):
    with pytest.raises(NestedExecutionError) as told:
        validate_nested_execution(path, environ)
    return told.value.message


@pytest.mark.parametrize("path", ["", MAIN, SESSION])
@pytest.mark.parametrize("flag", [{}, {"SKIP_BUG_FINDING": "true"}, {"SKIP_BUG_FINDING": "no"}])
@pytest.mark.parametrize("unset", [{}, {"PRP_PIPELINE_RUNNING": ""}])
def test_r0_2_outside_of_a_run_everything_is_allowed(path, flag, unset):
    assert validate_nested_execution(path, flag | unset) is None


@pytest.mark.parametrize("path", [SESSION, f"/home/me/project/{SESSION}", f"/home/me/plan/{SESSION}/"])
def test_r0_3_a_bug_fix_session_with_its_flag_may_recurse(running, path):
    assert validate_nested_execution(path, {"PRP_PIPELINE_RUNNING": running, "SKIP_BUG_FINDING": "true"}) is None


@pytest.mark.parametrize(
    "path", ["", MAIN, "/home/me/my-bugfix-tests/plan/001_0123456789ab", "/srv/bugfix/specs/001-x"]
)
def test_r0_4_the_flag_alone_is_not_enough(running, path):
    assert refused(path, PRP_PIPELINE_RUNNING=running, SKIP_BUG_FINDING="true") == MESSAGE.format(running)


def test_r0_5_the_path_alone_is_not_enough(running):
    assert refused(SESSION, PRP_PIPELINE_RUNNING=running) == MESSAGE.format(running)


def test_r0_6_with_neither_it_is_refused(running):
    assert refused(MAIN, PRP_PIPELINE_RUNNING=running) == MESSAGE.format(running)


@pytest.mark.parametrize("flag", ["TRUE", "True", "1", "yes", "true ", " true", "", "truetrue"])
def test_r0_7_the_flag_is_compared_to_the_letter(running, flag):
    assert refused(SESSION, PRP_PIPELINE_RUNNING=running, SKIP_BUG_FINDING=flag) == MESSAGE.format(running)


@pytest.mark.parametrize("value", ["abc", " 12 ", "-1", "12 34", "²", "99999999999999999999", "0"])
def test_r0_10_the_value_is_shown_as_it_was_found(value):
    assert refused(MAIN, PRP_PIPELINE_RUNNING=value) == MESSAGE.format(value)


def test_r0_15_it_looks_at_the_environment_of_the_process_itself(running, monkeypatch):
    monkeypatch.setenv("PRP_PIPELINE_RUNNING", running)

    with pytest.raises(NestedExecutionError):
        validate_nested_execution(MAIN)


def test_a_process_that_replaced_itself_is_not_nested_in_itself():
    assert validate_nested_execution(MAIN, {"PRP_PIPELINE_RUNNING": str(os.getpid())}) is None


def test_what_a_dead_run_left_in_the_environment_is_passed_with_a_warning(gone, tmp_path, capsys):
    (tmp_path / "doflow.yaml").touch()

    validate_nested_execution(str(tmp_path / MAIN), {"PRP_PIPELINE_RUNNING": gone})

    assert (
        capsys.readouterr().err == f"warning: PRP_PIPELINE_RUNNING names process {gone}, which has ended; continuing\n"
    )


def test_a_made_up_dead_process_opens_nothing_while_a_run_holds_the_lock(gone, tmp_path):
    (tmp_path / "doflow.yaml").touch()
    holder = Holder(tmp_path, "doit")
    holder.take()
    try:
        assert refused(str(tmp_path / MAIN), PRP_PIPELINE_RUNNING=gone) == MESSAGE.format(gone)
    finally:
        holder.release()


def test_the_variable_is_taken_back_only_while_it_is_ours():
    mine = {"PRP_PIPELINE_RUNNING": "1"}
    mutex.enter(mine)
    assert mine == {"PRP_PIPELINE_RUNNING": str(os.getpid())}

    mutex.leave(mine)
    assert mine == {}

    another = {"PRP_PIPELINE_RUNNING": "1"}
    mutex.leave(another)
    assert another == {"PRP_PIPELINE_RUNNING": "1"}


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["prd"], ""),
        (["prd", "--feature-dir=plan/x"], "/p/plan/x"),
        (["prd", "--feature-dir", "plan/x"], "/p/plan/x"),
        (["prd", "--feature-dir"], ""),
        (["prd", "--feature-dir=/q/plan/x"], "/q/plan/x"),
    ],
)
def test_the_session_is_read_from_the_command_line(words, path):
    assert mutex.session_path(words, "/p") == path
