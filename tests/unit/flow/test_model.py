"""What a flow says about itself, so that callers can leave out what it has no use for."""

from __future__ import annotations

import pytest

from doflow.flow.model import Flow, Read, Step

PLAN = Step("plan", "agent", makes=("plan.md",))


def flow(*steps: Step) -> Flow:
    return Flow("f", steps=steps, pipeline=tuple(step.id for step in steps))


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (Step("build", "implement", phases="plan.md"), False),
        (Step("build", "implement", phases="tasks.md"), True),
        (Step("build", "implement", phases="plan.md", phases_or=("tasks.md",)), True),
        (Step("build", "agent", makes=("code.md",)), False),
    ],
)
def test_a_list_that_no_step_makes_is_given(step: Step, given: bool) -> None:
    assert flow(PLAN, step).has_given_list is given


def test_a_step_of_kind_flow_is_a_sub_flow() -> None:
    assert (flow(PLAN).has_subflows, flow(PLAN, Step("design", "flow", flow="feature")).has_subflows) == (False, True)


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (Step("s", "agent", makes=("{goal}.md",)), True),
        (Step("s", "agent", writes=("src/{goal}/**",)), True),
        (Step("s", "agent", reads=(Read("{goal}.md"),)), True),
        (Step("s", "agent", needs=(Read("{goal}.md"),)), True),
        (Step("s", "implement", phases="{tasks}"), True),
        (Step("s", "implement", phases="a.md", phases_or=("{tasks}",)), True),
        (Step("s", "agent", makes=("a.md",), reads=(Read("b.md"),)), False),
    ],
)
def test_a_parameter_is_found_in_every_kind_of_path(step: Step, found: bool) -> None:
    assert flow(step).has_params_in_paths is found
