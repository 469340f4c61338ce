"""Epic 4, DOT schema and validator: each acceptance criterion as the commands show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.dots import NODE
from tests.support.project import Project

pytestmark = pytest.mark.smoke

HEAD = 'digraph auth {\n    graph [prd_ref="PRD-AUTH-001"];\n    start [shape=Mdiamond];\n    exit [shape=Msquare];\n'
TAIL = "    start -> impl_auth -> exit;\n}\n"


@pytest.fixture
def dot(project: Project) -> Path:
    return project.write("auth.dot", HEAD + NODE + TAIL)


def asked(project: Project, *words: str) -> dict:
    done = project.doflow(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_ac_1_section_design_and_folder_are_read_from_a_node(project: Project, dot: Path) -> None:
    told = asked(project, "dot", "status", "auth.dot")

    node = next(one for one in told["nodes"] if one.get("node", one.get("id")) == "impl_auth")
    found = node["all_attrs"]
    assert found["prd_section"] == "Epic 2: JWT Authentication"
    assert found["solution_design"] == ".claude/documentation/SOLUTION-DESIGN-AUTH.md"
    assert found["target_dir"] == "zenagent/agencheck/agencheck-support-agent"


@pytest.mark.parametrize("key", ["prd_ref", "acceptance"])
def test_ac_2_a_worker_without_prd_ref_or_acceptance_is_warned_of(project: Project, dot: Path, key: str) -> None:
    lines = [line for line in (HEAD + NODE + TAIL).splitlines(keepends=True) if f"{key}=" not in line]
    dot.write_text("".join(lines))

    told = asked(project, "validate", "auth.dot")

    assert any(key in remark["message"] and remark["node"] == "impl_auth" for remark in told["warnings"]), told


def test_ac_3_a_node_is_added_with_the_new_attributes(project: Project, dot: Path) -> None:
    words = ("--set", "prd_ref=PRD-AUTH-001", "--set", "solution_design=docs/x.md", "--set", "handler=codergen")
    more = ("--set", "bead_id=A-2", "--set", "worker_type=backend", "--set", "acceptance=works")

    asked(
        project,
        "dot",
        "node",
        "add",
        "auth.dot",
        "impl_mail",
        *words,
        *more,
        "--after",
        "impl_auth",
        "--before",
        "exit",
    )

    text = dot.read_text()
    assert 'prd_ref="PRD-AUTH-001"' in text.partition("impl_mail")[2]
    assert 'solution_design="docs/x.md"' in text.partition("impl_mail")[2]


def test_ac_4_a_generated_node_has_the_prd_ref_of_the_graph(project: Project) -> None:
    project.write("tasks.md", "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] Lay it (files: a.txt)\n")

    done = project.doflow("dot", "generate", "--tasks", "tasks.md", "--prd-ref", "PRD-7", "--out", "made.dot")

    assert done.returncode == 0, done.stdout + done.stderr
    worker = (project.root / "made.dot").read_text().partition("phase_1")[2]
    assert 'prd_ref="PRD-7"' in worker.partition("]")[0]


#: as pipelines were written before there were prd_ref, prd_section, solution_design and target_dir
OLD = """\
digraph "old" {
    graph [label="Initiative"; rankdir="LR"; promise_id="P-1"];
    node [fontname="Helvetica"];
    start [shape=Mdiamond label="Start" handler="start" status="validated" style=filled fillcolor=lightgreen];
    impl [shape=box label="Do it" handler="codergen" bead_id="B-1" worker_type="backend-solutions-engineer"
          acceptance="It works" promise_ac="AC-1" status="active"];
    check [shape=hexagon label="Check it" handler="wait.human" gate="technical" mode="technical" bead_id="B-2"];
    good [shape=diamond label="Good?" handler="conditional"];
    end [shape=Msquare label="End" handler="exit"];
    start -> impl; impl -> check [label="impl_complete"];
    check -> good; good -> end [condition="pass" style=solid]; good -> impl [condition="fail" style=dashed];
}
"""


def test_ac_5_a_pipeline_of_before_is_still_valid(project: Project, dot: Path) -> None:
    project.write("old.dot", OLD)

    for name in ("auth.dot", "old.dot"):
        told = asked(project, "validate", name)
        assert (told["valid"], told["errors"]) == (True, []), told
    assert [one["rule"] for one in asked(project, "validate", "old.dot")["warnings"]] == ["prd_ref"]
