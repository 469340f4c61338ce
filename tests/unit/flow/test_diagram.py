"""The graph of a flow: which nodes and ways it has, and that every format can be read by its own readers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from doflow.flow import diagram, plan
from doflow.flow.diagram import Arrow
from doflow.flow.model import Flow, Prompt, Route, Settings, Step

WRITE = Prompt("Write it.")


def step(name: str, **more) -> Step:
    return Step(name, prompt=WRITE, makes=(f"{name}.md",), **more)


def graph_of(*steps: Step, pipeline: tuple[str, ...] = (), settings: Settings | None = None) -> diagram.Graph:
    flow = Flow("f", "About it", steps=steps, pipeline=pipeline or tuple(found.id for found in steps))
    return diagram.build_graph(flow, plan.build_plan(flow, settings or Settings()))


SMALL, LARGE = Route("SMALL", ("tasks", "test")), Route("LARGE", ("plan", "tasks", "test"))
ROUTED = (
    step("triage", routes=(SMALL, LARGE, Route("NO", pause="stop"))),
    step("plan", gate="Good?"),
    step("tasks"),
    Step("test", kind="shell", run=("true",)),
)


def test_steps_follow_each_other():
    graph = graph_of(step("a"), step("b"), step("c"))

    assert [box.title for box in graph.boxes] == ["a", "b", "c"]
    assert graph.arrows == (Arrow("f:a", "f:b"), Arrow("f:b", "f:c"))


def test_what_follows_a_gate_waits_for_the_gate():
    graph = graph_of(step("a", clarify=True, gate="Good?"), step("b"))

    assert [(box.title, box.shape) for box in graph.boxes] == [
        ("a", "step"),
        ("a.clarify", "clarify"),
        ("a.gate", "gate"),
        ("b", "step"),
    ]
    assert graph.arrows[-1] == Arrow("f:a.gate", "f:b")


def test_a_gate_of_the_settings_is_drawn_too():
    graph = graph_of(step("a"), step("b"), settings=Settings(gates=("after-a",)))

    assert Arrow("f:a.gate", "f:b") in graph.arrows


def test_independent_steps_have_no_arrow_between_them():
    graph = graph_of(step("a", after=()), step("b", after=()), step("c", after=("a", "b")))

    assert set(graph.arrows) == {Arrow("f:a", "f:c"), Arrow("f:b", "f:c")}


def test_each_marker_of_a_router_is_one_way_on():
    graph = graph_of(*ROUTED)

    assert set(graph.arrows) == {
        Arrow("f:triage", "f:triage.route"),
        Arrow("f:triage.route", "f:tasks", "SMALL"),
        Arrow("f:triage.route", "f:plan", "LARGE"),
        Arrow("f:triage.route", "f:triage.route|NO", "NO"),
        Arrow("f:plan", "f:plan.gate"),
        Arrow("f:plan.gate", "f:tasks"),
        Arrow("f:tasks", "f:test"),
    }


def test_a_step_that_only_a_route_names_stands_where_it_runs():
    steps = (step("a", routes=(Route("X", ("extra", "b")), Route("Y", ("b",)))), step("b"), step("extra"))
    graph = graph_of(*steps, pipeline=("a", "b"))

    assert [box.title for box in graph.boxes] == ["a", "a.route", "extra", "b"]


def test_a_step_that_nothing_leads_to_is_not_drawn():
    graph = graph_of(step("a"), step("b"), step("idle"), pipeline=("a", "b"))

    assert [box.title for box in graph.boxes] == ["a", "b"]


def test_a_router_behind_a_router_is_followed():
    steps = (
        step("a", routes=(Route("ON", ("b", "c")), Route("OFF", ("c",)))),
        step("b", routes=(Route("UP", ("c",)), Route("DOWN", ("d",)))),
        step("c"),
        step("d"),
    )
    graph = graph_of(*steps, pipeline=("a", "b", "c"))

    ways = {(arrow.start, arrow.to, arrow.when) for arrow in graph.arrows if arrow.when}
    assert ways == {
        ("f:a.route", "f:b", "ON"),
        ("f:a.route", "f:c", "OFF"),
        ("f:b.route", "f:c", "UP"),
        ("f:b.route", "f:d", "DOWN"),
    }


def test_text_says_what_a_node_waits_for_unless_it_is_the_line_above():
    assert diagram.text(graph_of(*ROUTED)) == (
        "f: About it\n"
        "  .  triage        makes triage.md\n"
        "  <> triage.route  where triage leads\n"
        "  .  plan          makes plan.md   after triage.route [LARGE]\n"
        "  || plan.gate     Good?\n"
        "  .  tasks         makes tasks.md   after triage.route [SMALL], plan.gate\n"
        "  $  test          true\n"
        "  || pause         stop   after triage.route [NO]\n"
    )


def test_text_says_that_a_step_waits_for_nothing():
    assert diagram.text(graph_of(step("a"), step("b", after=()))).splitlines()[-1] == "  .  b  makes b.md   at once"


NASTY = 'a "quoted" <b>&amp; `x`; \\ end#'


def test_mermaid_labels_hold_nothing_that_ends_them():
    text = diagram.mermaid(graph_of(step("a", about=NASTY, gate=NASTY)))

    labels = re.findall(r'"(.*)"', text)
    assert len(labels) == 2
    assert all(not set(label.replace("<br/>", "").replace("#quot;", "")) & set('"<>&`\\') for label in labels)


def test_dot_quotes_are_balanced():
    text = diagram.dot(graph_of(step("a", about=NASTY)))

    line = next(line for line in text.splitlines() if "label=" in line)
    assert 'label="a\\na \\"quoted\\" <b>&amp; `x`; \\\\ end# → a.md"' in line


@pytest.mark.parametrize("steps", [(step("a", about=NASTY, gate=NASTY), step("b")), ROUTED])
def test_svg_is_xml_with_one_box_per_node_and_one_line_per_arrow(steps):
    graph = graph_of(*steps)
    root = ElementTree.fromstring(diagram.svg(graph))

    space = "{http://www.w3.org/2000/svg}"
    titles = [text.text for text in root.iter(f"{space}text") if text.get("font-weight")]
    assert titles == [box.title for box in graph.boxes]
    assert len([path for path in root.iter(f"{space}path") if path.get("marker-end")]) == len(graph.arrows)


def test_svg_boxes_never_overlap():
    root = ElementTree.fromstring(diagram.svg(graph_of(*ROUTED)))

    boxes = [
        tuple(int(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if rect.get("rx")
    ]
    assert len(boxes) == 7
    for place, (x, y, wide, high) in enumerate(boxes):
        for other_x, other_y, _, _ in boxes[place + 1 :]:
            assert abs(x - other_x) >= wide or abs(y - other_y) >= high
