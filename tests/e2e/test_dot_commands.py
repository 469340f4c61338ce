"""`doflow dot` and `doflow validate FILE.dot`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.project import Project

TEXT = """\
// keep this line
digraph "auth flow" {
    graph [prd_ref="PRD-AUTH-001"];
    start [shape=Mdiamond];
    gate [shape=hexagon]; /* and this */
    exit [shape=Msquare];
    start -> gate -> exit;
}
"""
ADD = ("--set", "handler=codergen", "--set", "bead_id=A-1", "--set", "worker_type=backend")


@pytest.fixture
def dot(project: Project) -> Path:
    return project.write("auth.dot", TEXT)


def asked(project: Project, *words: str, code: int = 0) -> dict:
    done = project.doflow(*words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout or done.stderr)


@pytest.mark.smoke
def test_r2_101_a_node_is_added_with_any_attribute_and_inherits_prd_ref(project: Project, dot: Path) -> None:
    words = (
        "--set",
        "solution_design=docs/design.md",
        "--set",
        "acceptance=it = works",
        "--after",
        "start",
        "--before",
        "gate",
    )

    added = asked(project, "dot", "node", "add", "auth.dot", "impl_auth", *ADD, *words)

    assert added["node"]["all_attrs"]["prd_ref"] == "PRD-AUTH-001"
    assert added["node"]["all_attrs"]["acceptance"] == "it = works"
    assert (added["node"]["shape"], added["errors"]) == ("box", 0)
    text = dot.read_text()
    assert "// keep this line\n" in text
    assert "/* and this */" in text
    assert "    start -> impl_auth;\n    impl_auth -> gate;\n" in text
    project.write("docs/design.md", "# Design\n")
    assert asked(project, "validate", "auth.dot") == {
        "valid": True, "errors": [], "warnings": [], "notes": [], "summary": "0 errors, 0 warnings",
    }  # fmt: skip


@pytest.mark.smoke
def test_r2_102_a_node_is_changed_and_taken_out_again_and_nothing_else_moves(project: Project, dot: Path) -> None:
    assert project.doflow("dot", "node", "modify", "auth.dot", "gate", "--set", "solution_design=a.md").returncode == 0
    changed = dot.read_text()
    assert project.doflow("dot", "node", "modify", "auth.dot", "gate", "--unset", "solution_design").returncode == 0

    assert changed == TEXT.replace("hexagon]", 'hexagon, solution_design="a.md"]')
    assert dot.read_text() == TEXT
    assert project.doflow("dot", "edge", "add", "auth.dot", "start", "exit").returncode == 0
    assert project.doflow("dot", "node", "remove", "auth.dot", "gate").returncode == 0
    assert dot.read_text().splitlines()[3:] == [
        "    start [shape=Mdiamond];", "    /* and this */", "    exit [shape=Msquare];", "    start -> exit;", "}",
    ]  # fmt: skip


@pytest.mark.smoke
def test_statuses_move_only_as_the_table_allows(project: Project, dot: Path) -> None:
    moved = asked(project, "dot", "transition", "auth.dot", "start", "active")
    refused = asked(project, "dot", "transition", "auth.dot", "gate", "validated", code=1)
    early = asked(project, "dot", "transition", "auth.dot", "exit", "active", code=1)
    claimed = asked(project, "dot", "transition", "auth.dot", "start", "active", "--expect", "pending", code=1)
    forced = asked(project, "dot", "node", "modify", "auth.dot", "gate", "--set", "status=validated", code=1)

    assert moved["node"]["status"] == "active"
    assert refused["message"] == "auth.dot: gate is pending and cannot become validated"
    assert refused["hint"] == "from pending it may become: active"
    assert "these gates are not validated: gate" in early["message"]
    assert "start is active, not pending" in claimed["message"]
    assert forced["hint"] == "doflow dot transition auth.dot gate validated"
    status = asked(project, "dot", "status", "auth.dot")
    assert (status["ready"], status["counts"]) == ([], {"active": 1, "pending": 2})
    assert "start  start       active" in project.doflow("dot", "status", "auth.dot").stdout
    assert project.doflow("dot", "restart", "auth.dot").returncode == 0
    assert asked(project, "dot", "status", "auth.dot")["ready"] == ["start"]


@pytest.mark.smoke
def test_errors_have_their_line_and_exit_1_and_warnings_exit_0(project: Project, dot: Path) -> None:
    project.doflow("dot", "node", "add", "auth.dot", "impl", "--set", "handler=tool", "--after", "start")

    told = asked(project, "validate", "auth.dot", code=1)
    plain = project.doflow("validate", "auth.dot")

    line = dot.read_text().splitlines().index("    impl [") + 1
    assert [(one["rule"], one["line"], one["node"]) for one in told["errors"]] == [("required", line, "impl")]
    assert f"auth.dot:{line}: error: impl (tool) has no command" in plain.stdout
    dot.write_text("digraph {\n a [x=]\n}")
    assert asked(project, "validate", "auth.dot", code=1)["errors"][0]["line"] == 2


def test_any_flow_as_dot_passes_validate_and_graphviz_words_are_kept(project: Project) -> None:
    shown = project.doflow("show", "feature", "--format", "dot")
    project.write("feature.dot", shown.stdout)

    assert asked(project, "validate", "feature.dot")["valid"]
    assert shown.stdout.startswith("digraph feature {\n")


@pytest.mark.smoke
def test_a_pipeline_is_made_from_a_task_list_and_never_over_another_file(project: Project) -> None:
    project.write("tasks.md", "# T\n\n## Phase 1: Ground\n\n- [ ] [T001] Lay it\n")
    words = ("dot", "generate", "--tasks", "tasks.md", "--prd-ref", "PRD-1", "--check", "true", "--name", "house")

    assert project.doflow(*words, "--out", "house.dot").returncode == 0

    assert asked(project, "validate", "house.dot", "--strict")["valid"]
    again = asked(project, *words, "--out", "house.dot", code=1)
    assert again["message"] == "house.dot already exists"
    project.write("tasks.md", "# T\n\n- [ ] no task\n")
    assert "tasks.md:1: the list has no task" in asked(project, *words, code=1)["message"]


def test_a_registered_pipeline_is_known_by_its_name(project: Project, dot: Path) -> None:
    project.settings("pipelines: {auth: auth.dot, tiny: auth.dot, gone: gone.dot}\n")

    assert asked(project, "dot", "status", "auth")["pipeline"] == "auth flow"
    told = asked(project, "validate", code=1)
    assert [problem["message"] for problem in told["problems"]] == [
        "tiny is the name of both a flow and a pipeline",
        "cannot read gone.dot: No such file or directory",
    ]
    no_one = asked(project, "dot", "status", "other", code=1)
    assert no_one["hint"] == "pipelines in doflow.yaml: auth, tiny, gone"
    assert project.doflow("show", "auth", "--format", "dot").stdout == TEXT
    assert "auth" in project.doit("list").stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pipelines: {Auth Flow: a.dot}", "pipeline name 'Auth Flow' is not a valid name"),
        ("pipelines: {list: a.dot}", "pipeline name 'list' is a doit command"),
        ("pipelines: {a: ../a.dot}", "the path '../a.dot' has a .."),
        ("pipelines: {a: a.yaml}", "a.yaml is not a DOT file"),
    ],
)
def test_a_pipeline_that_cannot_be_one_is_a_problem_of_the_settings(project: Project, line: str, message: str) -> None:
    project.settings(f"{line}\n")

    told = asked(project, "validate", code=1)

    assert message in [problem["message"] for problem in told["problems"]]
