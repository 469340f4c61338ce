"""Pipelines that are written again: do they pass their own checks, whatever the flow or the task list says?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import checkout

from doflow.flow import diagram, plan, subflow, tasklist
from doflow.flow.dot import compiler, generate, node_steps, order, parser, validate
from doflow.flow.model import Flow, Prompt, Route, Settings, Step
from doflow.flow.parsing import loader

FLOWS = sorted((checkout.TOP / "flows").glob("*.yaml"))
NASTY = 'a "quoted" <b>&amp; `x`; \\ end#'
TASKS = """# Tasks

## Phase 1: Ground

- [ ] [T001] Lay the "ground" in ground.py
- [ ] [T002] Water it

## Phase 2: House

- [ ] [T003] Build it
"""


def drawn(flow: Flow, wish: generate.GenerateOptions | None = None) -> str:
    return generate.generate_from_flow(
        flow, diagram.build_graph(flow, plan.build_plan(flow, Settings())), wish or generate.GenerateOptions()
    )


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.stem)
def test_every_packaged_flow_is_a_valid_pipeline(path: Path, tmp_path: Path) -> None:
    catalogue = loader.load_catalogue(tmp_path)
    text = drawn(
        subflow.inline_subflows(catalogue.flows[path.stem], catalogue.flows), generate.GenerateOptions("PRD-7")
    )

    found = parser.parse_pipeline(text)

    assert validate.errors(validate.check_pipeline(found)) == ()
    assert [node.id for node in order.ready_nodes(found)] == ["start"]
    workers = [node for node in found.nodes if node.handler == "codergen"]
    assert all(node.get("prd_ref") == "PRD-7" for node in workers)


def test_no_word_of_a_flow_can_break_the_text() -> None:
    steps = (
        Step("start", prompt=Prompt("x"), makes=("a.md",), about=NASTY, gate=NASTY),
        Step("exit", "shell", run=("sh", "-c", NASTY)),
        Step("graph", prompt=Prompt("x"), makes=("b.md",), routes=(Route(NASTY, ("last",)), Route("B", pause=NASTY))),
        Step("last", prompt=Prompt("x"), makes=("c.md",)),
    )
    found = parser.parse_pipeline(drawn(Flow("f", NASTY, (), steps, ("start", "exit", "graph"))))

    assert validate.errors(validate.check_pipeline(found)) == ()
    assert found.get("label") == NASTY
    tool = found.node("exit")
    assert tool.get("command") == f"sh -c '{NASTY}'"
    assert NASTY in [edge.get("label") for edge in found.edges]


def test_r2_103_a_task_list_becomes_a_pipeline_whose_workers_inherit_prd_ref() -> None:
    text = generate.generate_from_tasks(
        tasklist.parse_task_list(TASKS), "house", generate.GenerateOptions("PRD-1", "builder", "pytest -q")
    )

    found = parser.parse_pipeline(text)

    assert validate.check_pipeline(found) == ()
    assert found.get("prd_ref") == "PRD-1"
    first = found.node("phase_1")
    assert (first.label, first.get("bead_id"), first.get("prd_ref")) == ("Phase 1: Ground", "T001-T002", "PRD-1")
    assert first.get("acceptance") == '- T001: Lay the "ground" in ground.py\n- T002: Water it'
    assert [edge.to for edge in found.out_of("good_1")] == ["phase_1", "phase_2"]


def test_without_a_command_a_person_passes_the_gates() -> None:
    found = parser.parse_pipeline(
        generate.generate_from_tasks(tasklist.parse_task_list(TASKS), "house", generate.GenerateOptions("PRD-1"))
    )

    assert validate.errors(validate.check_pipeline(found)) == ()
    assert [node.handler for node in found.nodes].count("conditional") == 0
    assert compiler.needs_person(found.node("check_1"))


def test_a_generated_pipeline_becomes_a_flow(tmp_path: Path) -> None:
    path = tmp_path / "house.dot"
    path.write_text(
        generate.generate_from_tasks(
            tasklist.parse_task_list(TASKS), "house", generate.GenerateOptions("PRD-1", check="true")
        )
    )

    flow = compiler.compile_pipeline(str(path), "house", "house.dot")

    assert flow.pipeline == ("phase_1", "check_1", "good_1", "phase_2", "check_2", "good_2")
    assert [step.kind for step in flow.steps][:3] == ["agent", "shell", "shell"]
    assert len(flow.steps) == 2 * 3 * 4


def test_r2_89_a_worker_is_told_all_that_its_node_says() -> None:
    text = """digraph p { prd_ref="PRD-9"; a [label="Build\\nit" prompt="Mind the gap." prd_section="Epic 2"
        solution_design="docs/design.md" target_dir="app/" bead_id="B-1" worker_type="backend" acceptance="Tests\\npass"] }"""
    found = parser.parse_pipeline(text)

    words = node_steps.prompt_text(found, found.node("a"))

    for said in (
        "# Build\nit",
        "Mind the gap.",
        "PRD-9",
        "Epic 2",
        "`docs/design.md`",
        "`app/`",
        "B-1",
        "backend",
        "Tests\npass",
    ):
        assert said in words
