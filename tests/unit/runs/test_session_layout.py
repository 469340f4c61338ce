"""Where sessions live, what they are called, and who may begin one (R0.17 to R0.23)."""

from __future__ import annotations

import pytest

from doflow.engine.lifecycle import resolve_run
from doflow.flow.model import Flow, Param, Route, Step
from doflow.runs import session_layout
from doflow.runs.catalogue import Run
from doflow.util.errors import UsageError

MAIN = "plan/001_0123456789ab"
CHILD = f"{MAIN}/bugfix/002_ba9876543210"
FLAG = {"SKIP_BUG_FINDING": "true"}


def test_r0_19_and_r0_20_a_session_is_named_by_number_and_hash():
    names = ["001_0123456789ab", "003_ffffffffffff", "notes", "002-a-spec"]

    assert session_layout.new_session_folder("plan", names, "abc") == "plan/004_ba7816bf8f01"
    assert session_layout.new_session_folder(f"{MAIN}/bugfix", [], "abc") == f"{MAIN}/bugfix/001_ba7816bf8f01"
    assert (session_layout.run_name(MAIN), session_layout.run_name(CHILD)) == (
        "001_0123456789ab", "001_0123456789ab.bugfix.002_ba9876543210"
    )  # fmt: skip
    assert (
        session_layout.parent_session(CHILD),
        session_layout.parent_session(MAIN),
        session_layout.parent_session("specs/001-x"),
    ) == (
        MAIN,
        "",
        "",
    )
    assert [session_layout.sequence_number(path) for path in (MAIN, CHILD, "specs/001-x")] == ["001", "002", ""]


@pytest.mark.parametrize(("path", "environ"), [(MAIN, {}), (MAIN, {"SKIP_BUG_FINDING": "TRUE"}), (CHILD, FLAG)])
def test_a_session_begins_where_it_belongs(path, environ):
    assert session_layout.check_session_path(path, environ) is None


@pytest.mark.parametrize(
    ("path", "environ", "words"),
    [
        (MAIN, FLAG, "SKIP_BUG_FINDING=true is only for bug-fix sessions"),
        ("plan/my-bugfix", FLAG, "SKIP_BUG_FINDING=true is only for bug-fix sessions"),
        (f"{MAIN}/other/001_0123456789ab", FLAG, "SKIP_BUG_FINDING=true is only for bug-fix sessions"),
        (CHILD, {}, "would be a bug-fix session, but SKIP_BUG_FINDING is not `true`"),
        (CHILD, {"SKIP_BUG_FINDING": "1"}, "would be a bug-fix session"),
        ("plan/wishes", {}, "plan/wishes is not a valid session folder"),
        ("specs/001-x", {}, "specs/001-x is not a valid session folder"),
    ],
)
def test_r0_17_and_r0_18_anywhere_else_it_is_refused(path, environ, words):
    with pytest.raises(UsageError) as told:
        session_layout.check_session_path(path, environ)

    assert words in told.value.message


def test_r0_21_to_r0_23_what_the_guard_saw(capsys):
    session_layout.check_session_path(MAIN, {"DOFLOW_DEBUG": "1"})

    assert capsys.readouterr().err == (
        f"[Guard] PLAN_DIR=plan\n[Guard] SESSION_DIR={MAIN}\n[Guard] SKIP_BUG_FINDING=\n"
    )
    assert session_layout.debug_lines(CHILD, FLAG)[0] == f"[Guard] PLAN_DIR={MAIN}/bugfix"


FLOW = Flow(
    "prd",
    params=(Param("tone"),),
    steps=(
        Step("delta", only=(("param", "previous"),)),
        Step("build", only=(("unless", "SKIP_EXECUTION_LOOP"),)),
        Step("check", after=("build", "delta")),
        Step("hunt", only=(("unless", "SKIP_BUG_FINDING"),), routes=(Route("BUGS", ("fix", "again")), Route("NONE"))),
        Step("fix"),
        Step("again"),
        Step("loud", only=(("param", "tone"),)),
    ),
    pipeline=("delta", "build", "check", "hunt"),
)


@pytest.mark.parametrize(
    ("params", "environ", "folder", "steps", "pipeline"),
    [
        ({}, {}, MAIN, "build check hunt fix again", "build check hunt"),
        ({"previous": "x"}, {}, MAIN, "delta build check hunt fix again", "delta build check hunt"),
        ({}, {"SKIP_EXECUTION_LOOP": "true"}, MAIN, "check hunt fix again", "check hunt"),
        ({}, {"SKIP_BUG_FINDING": "true"}, MAIN, "build check", "build check"),
        ({}, {"SKIP_BUG_FINDING": "True"}, MAIN, "build check hunt fix again", "build check hunt"),
        ({}, {}, CHILD, "build check", "build check"),
    ],
)
def test_a_run_has_the_steps_that_it_is_meant_to_have(params, environ, folder, steps, pipeline):
    found = resolve_run.without_absent_steps(FLOW, Run("x", "prd", folder, params=params), environ)

    assert ([step.id for step in found.steps], list(found.pipeline)) == (steps.split(), pipeline.split())


def test_a_step_that_waits_for_one_that_is_not_there_waits_for_the_rest():
    found = resolve_run.without_absent_steps(FLOW, Run("x", "prd", MAIN), {})

    assert found.step("check").after == ("build",)
