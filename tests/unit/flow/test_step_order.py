"""The order of steps: in a line, side by side, and as markers route it."""

from __future__ import annotations

import pytest
from tests.support.context import new_context, step_of

from doflow.flow.plan import StepOrder
from doflow.runs.lockfile import StepRecord

ROUTED = """
    flow: tiny
    pipeline: [triage, small]
    steps:
      triage:
        prompt: Say.
        routes: [{when: SMALL, then: [small]}, {when: LARGE, then: [plan, small]}, {when: STOP, pause: Stopped.}]
      plan: {prompt: Plan., makes: plan.md}
      small: {prompt: Do., makes: small.md}
"""
CODE = """
    spec: {prompt: Write., makes: spec.md}
    read: {kind: review, personas: [qa], reads: [spec.md], prompt: Review.}
    implement: {kind: implement, phases: /tasks.md, prompt: Do.}
    lint: {kind: shell, run: "true"}
    test: {kind: shell, run: "true"}
    review: {kind: review, personas: [qa], reads: [spec.md], prompt: Review.}
"""


def test_steps_come_one_after_the_other(tmp_path):
    order = new_context(tmp_path, "a: {prompt: A.}\nb: {prompt: B.}\nc: {prompt: C.}").order

    assert order.active() == ("a", "b", "c")
    assert [order.before(name) for name in "abc"] == [(), ("a",), ("b",)]
    assert order.before("b:item") == ("a",)
    assert order.before("unknown") == ()


def test_after_says_whom_a_step_waits_for(tmp_path):
    order = new_context(tmp_path, "a: {prompt: A.}\nb: {prompt: B., after: []}\nc: {prompt: C., after: [a, b]}").order

    assert [order.before(name) for name in "abc"] == [(), (), ("a", "b")]


@pytest.mark.parametrize(
    ("marker", "active"),
    [("", ("triage", "small")), ("LARGE", ("triage", "plan", "small")), ("SMALL", ("triage", "small"))],
)
def test_a_marker_decides_which_steps_run(tmp_path, marker, active):
    context = new_context(tmp_path, ROUTED)
    assert context.order.active() == ("triage", "small")
    if marker:
        context.complete("triage", StepRecord("k", marker=marker), {})

    assert context.order.active() == active
    assert context.order.before("small") == (active[-2],)


def test_an_order_follows_the_markers_that_it_is_given(tmp_path):
    context = new_context(tmp_path, ROUTED)
    order = StepOrder(context.flow, context.plan, {"triage": "LARGE"})

    assert order.active() == ("triage", "plan", "small")


def test_a_command_is_about_the_code_before_it_and_not_about_the_step_right_before(tmp_path):
    context = new_context(tmp_path, CODE)

    assert context.order.builders(step_of(context, "test")) == ["implement"]
    assert context.order.builders(step_of(context, "lint")) == []
    assert context.order.builders(step_of(context, "review")) == []


def test_a_review_after_code_reads_the_code(tmp_path):
    context = new_context(tmp_path, CODE)

    found = {name: context.order.reviews_code(step_of(context, name)) for name in ("read", "test", "review")}
    assert found == {"read": False, "test": False, "review": True}
