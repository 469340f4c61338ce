"""A flow inside a flow: the inner steps in the place of the outer one, under names of their own."""

from __future__ import annotations

from doflow.flow import plan, subflow
from doflow.flow.model import Flow, Param, Read, Route, Settings, Step


def flow(name: str, *steps: Step, pipeline: tuple[str, ...] = (), **more: object) -> Flow:
    return Flow(name, steps=steps, pipeline=pipeline or tuple(step.id for step in steps), **more)


DESIGN = flow(
    "design",
    Step("plan", reads=(Read("input.md"), Read("/docs/*.md")), makes=("plan.md",)),
    Step("tasks", reads=(Read("plan.md"),), needs=(Read("plan.md"),), makes=("tasks.md", "/TASKS.md")),
    params=(Param("depth", default="low"), Param("topic")),
    protect=("/docs/",),
)


def inlined(outer: Flow, *inner: Flow) -> Flow:
    flows = {one.name: one for one in (outer, *inner)}
    return subflow.inline_subflows(outer, flows)


def by_id(found: Flow) -> dict[str, Step]:
    return {step.id: step for step in found.steps}


def test_a_flow_without_a_sub_flow_is_left_as_it_is():
    assert inlined(DESIGN) is DESIGN


def test_inner_steps_take_the_place_of_the_step_with_its_name_in_front():
    found = inlined(flow("big", Step("first"), Step("d", "flow", flow="design"), Step("last")), DESIGN)

    steps = by_id(found)
    assert found.pipeline == ("first", "d/plan", "d/tasks", "last")
    assert list(steps) == ["first", "d/plan", "d/tasks", "last"]
    assert [read.path for read in steps["d/plan"].reads] == ["input.md", "/docs/*.md"]
    assert [read.path for read in (*steps["d/tasks"].reads, *steps["d/tasks"].needs)] == ["d/plan.md", "d/plan.md"]
    assert steps["d/tasks"].makes == ("d/tasks.md", "/TASKS.md")
    assert steps["d/plan"].protect == ("/docs/",)
    assert found.inputs == ()


def test_a_sub_flow_with_a_goal_of_its_own_gets_an_input_of_its_own():
    outer = flow("big", Step("d", "flow", flow="design", params=(("goal", "Design {goal}"), ("topic", "keys"))))

    found = inlined(outer, DESIGN)

    assert found.inputs == (("d/input.md", "Design {goal}"),)
    assert by_id(found)["d/plan"].reads[0].path == "d/input.md"
    assert dict(by_id(found)["d/plan"].params) == {"depth": "low", "goal": "Design {goal}", "topic": "keys"}


def test_two_of_the_same_flow_never_meet():
    found = inlined(flow("big", Step("a", "flow", flow="design"), Step("b", "flow", flow="design")), DESIGN)

    assert found.pipeline == ("a/plan", "a/tasks", "b/plan", "b/tasks")
    made = [path for step in found.steps for path in step.makes if not path.startswith("/")]
    assert len(made) == len(set(made)) == 4


def test_who_waits_for_the_step_waits_for_the_inner_end_and_the_inner_beginning_for_what_the_step_waits_for():
    design = Step("d", "flow", flow="design", after=("first", "other"))
    outer = flow("big", Step("first"), Step("other", after=()), design, Step("last", after=("d", "other")))

    steps = by_id(inlined(outer, DESIGN))

    assert (steps["d/plan"].after, steps["d/tasks"].after) == (("first", "other"), None)
    assert steps["last"].after == ("d/tasks", "other")


def test_inner_steps_that_wait_for_nothing_still_wait_for_what_comes_before_the_sub_flow():
    side = flow("side", Step("a", after=()), Step("b", after=()), Step("c", after=("a", "b")))

    steps = by_id(inlined(flow("big", Step("first"), Step("s", "flow", flow="side")), side))

    assert [steps[name].after for name in ("s/a", "s/b", "s/c")] == [("first",), ("first",), ("s/a", "s/b")]


def test_the_first_of_all_waits_for_nothing():
    side = flow("side", Step("a", after=()), Step("b", after=()))

    steps = by_id(inlined(flow("big", Step("s", "flow", flow="side"), Step("last", after=("s",))), side))

    assert (steps["s/a"].after, steps["s/b"].after, steps["last"].after) == ((), (), ("s/b",))


def test_a_nested_sub_flow_is_inlined_through_and_through():
    inner = Step("d", "flow", flow="design", params=(("goal", "Part {topic}"),))
    middle = flow("middle", inner, params=(Param("topic"),))
    outer = flow("big", Step("m", "flow", flow="middle", params=(("topic", "{goal}!"),)), Step("last", after=("m",)))

    found = inlined(outer, middle, DESIGN)

    assert found.pipeline == ("m/d/plan", "m/d/tasks", "last")
    assert by_id(found)["m/d/tasks"].reads[0].path == "m/d/plan.md"
    assert by_id(found)["last"].after == ("m/d/tasks",)
    assert found.inputs == (("m/d/input.md", "Part {goal}!"),)
    assert dict(by_id(found)["m/d/plan"].params)["goal"] == "Part {goal}!"


ROUTED = flow(
    "routed",
    Step("look", routes=(Route("SCALE: SMALL", then=("mend",)), Route("STOP", pause="stop here"))),
    Step("mend"),
    pipeline=("look",),
)


def active(found: Flow, **markers: str) -> tuple[str, ...]:
    known = {name.replace("__", "/"): marker for name, marker in markers.items()}
    return plan.active_steps(plan.build_plan(found, Settings()), known)


def test_an_inner_route_goes_on_with_the_outer_steps():
    found = inlined(flow("big", Step("r", "flow", flow="routed"), Step("last")), ROUTED)

    assert found.pipeline == ("r/look", "last")
    assert active(found, r__look="SCALE: SMALL") == ("r/look", "r/mend", "last")


def test_an_inner_route_goes_on_with_a_sub_flow_that_follows():
    outer = flow("big", Step("r", "flow", flow="routed"), Step("d", "flow", flow="design"), Step("last"))

    found = inlined(outer, ROUTED, DESIGN)

    assert active(found, r__look="SCALE: SMALL") == ("r/look", "r/mend", "d/plan", "d/tasks", "last")


def test_an_outer_route_may_name_a_sub_flow():
    outer = flow("big", Step("ask", routes=(Route("YES", then=("r", "last")), Route("NO", then=("last",)))),
                 Step("r", "flow", flow="routed"), Step("last"), pipeline=("ask",))  # fmt: skip

    found = inlined(outer, ROUTED)

    assert active(found, ask="NO") == ("ask", "last")
    assert active(found, ask="YES") == ("ask", "r/look", "last")
    assert active(found, ask="YES", r__look="SCALE: SMALL") == ("ask", "r/look", "r/mend", "last")


def test_who_waits_for_a_sub_flow_that_routes_waits_for_all_of_it_that_runs():
    outer = flow("big", Step("r", "flow", flow="routed"), Step("side", after=()), Step("last", after=("r",)))

    found = inlined(outer, ROUTED)

    order = active(found, r__look="SCALE: SMALL")
    assert plan.predecessors(plan.build_plan(found, Settings()), order)["last"] == ("r/look", "r/mend")


def test_a_gate_on_the_step_stands_behind_the_inner_flow_and_shows_what_it_made():
    two = (Step("d", "flow", flow="design", gate="Good?"), Step("r", "flow", flow="routed", gate="Mended?"))
    outer = flow("big", *two, Step("last", after=("d",)))

    found = inlined(outer, DESIGN, ROUTED)

    gate = by_id(found)["d"]
    assert (gate.kind, gate.gate, gate.after) == ("gate", "Good?", ("d/tasks",))
    assert [read.path for read in gate.reads] == ["d/plan.md", "d/tasks.md", "/TASKS.md"]
    assert by_id(found)["last"].after == ("d",)
    assert found.pipeline == ("d/plan", "d/tasks", "d", "r/look", "r", "last")
    assert active(found, r__look="SCALE: SMALL")[3:] == ("r/look", "r/mend", "r", "last")


def test_a_list_of_items_in_a_sub_flow_is_read_where_the_sub_flow_makes_it():
    each = flow("each", Step("list", makes=("items.yaml",)), Step("part", foreach="items.yaml", makes=("{item}.md",)),
                Step("fixed", foreach=("a", "b"), makes=("x-{item}.md",)))  # fmt: skip

    steps = by_id(inlined(flow("big", Step("e", "flow", flow="each")), each))

    assert (steps["e/part"].foreach, steps["e/part"].makes) == ("e/items.yaml", ("e/{item}.md",))
    assert (steps["e/fixed"].foreach, steps["e/fixed"].makes) == (("a", "b"), ("e/x-{item}.md",))


def test_the_agent_of_the_step_does_the_inner_steps_that_name_none():
    inner = flow("inner", Step("a"), Step("b", agent="own", model="large"))

    steps = by_id(inlined(flow("big", Step("i", "flow", flow="inner", agent="cheap", model="small")), inner))

    assert [(steps[name].agent, steps[name].model) for name in ("i/a", "i/b")] == [("cheap", "small"), ("own", "large")]
