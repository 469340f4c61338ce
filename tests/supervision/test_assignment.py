"""What an orchestrator is told, and who does a node: from the attributes alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doflow.flow.dot import parser
from doflow.flow.model import Profile, Settings, Supervision
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.orchestrator import Assignment

pytestmark = pytest.mark.smoke

FULL = """
digraph auth {
  prd_ref="PRD-GRAPH"
  impl_auth [
    handler="codergen"
    shape=box
    label="JWT login"
    status="pending"
    fillcolor="lightyellow"
    bead_id="AUTH-042"
    worker_type="backend-solutions-engineer"
    prd_ref="PRD-AUTH-001"
    prd_section="Epic 2: JWT Authentication"
    solution_design=".claude/documentation/SOLUTION-DESIGN-AUTH.md"
    target_dir="app/auth"
    acceptance="JWT auth with refresh tokens, unit tests pass, no hardcoded secrets"
    promise_ac="AC-2"
    house_rule="no global state"
    forbid="Edit, Write"
    stuck="90s"
    validate="pytest -q"
  ]
  other [shape=box, worktree="trees/other", target_dir="elsewhere"]
}
"""


def made(tmp_path: Path, node: str = "impl_auth", settings: Settings | None = None) -> Assignment:
    path = tmp_path / "auth.dot"
    path.write_text(FULL)
    pipeline = parser.read_pipeline(path)
    found = pipeline.node(node)
    assert found is not None
    return orchestrator.assignment_for(found, pipeline, "auth", "/root", settings or Settings())


def test_the_full_node_of_the_design_becomes_an_assignment(tmp_path: Path) -> None:
    """R2.29, R2.46 to R2.53."""
    found = made(tmp_path)

    assert (found.node, found.pipeline, found.label) == ("impl_auth", "auth", "JWT login")
    assert (found.cwd, found.forbid, found.stuck) == ("/root/app/auth", ("Edit", "Write"), 90.0)
    assert (found.attempt, found.feedback, found.fresh, found.agent) == (1, "", True, "default")
    assert found.attributes["prd_ref"] == "PRD-AUTH-001"


def test_a_node_without_its_own_gets_the_prd_of_the_graph_and_works_in_its_worktree(tmp_path: Path) -> None:
    found = made(tmp_path, "other")

    assert found.attributes["prd_ref"] == "PRD-GRAPH"
    assert found.cwd == "/root/trees/other"
    assert found.stuck == 300.0


def test_the_prompt_says_what_matters_and_nothing_of_the_drawing(tmp_path: Path) -> None:
    """R2.89."""
    text = orchestrator.build_prompt(made(tmp_path), tells=True)

    for words in (
        "You are the orchestrator of the node impl_auth of the pipeline auth.", "Its purpose: JWT login",
        "- PRD: PRD-AUTH-001", "- Section of the PRD: Epic 2: JWT Authentication",
        "- Solution design: .claude/documentation/SOLUTION-DESIGN-AUTH.md",
        "- Acceptance criteria: JWT auth with refresh tokens, unit tests pass, no hardcoded secrets",
        "- Work in the folder: app/auth", "- Bead: AUTH-042", "- Promised criterion: AC-2",
        "- Let this kind of worker do it: backend-solutions-engineer", "- house_rule: no global state",
        "Do not use these tools yourself: Edit, Write.",
    ):  # fmt: skip
        assert words in text
    for words in ("lightyellow", "pending", "pytest -q", "shape", "DOFLOW", "attempt"):
        assert words not in text


def test_a_program_without_hooks_is_told_how_to_end_but_not_in_the_words_themselves(tmp_path: Path) -> None:
    text = orchestrator.build_prompt(made(tmp_path), tells=False)

    assert "the word DOFLOW, a colon, a space and the word done" in text
    assert "DOFLOW: done" not in text, "the prompt may be on the screen"


def test_a_later_attempt_hears_what_was_wrong(tmp_path: Path) -> None:
    work = replace(made(tmp_path), attempt=3, feedback="two tests fail")

    assert orchestrator.build_prompt(work, tells=True).endswith(
        "This is attempt 3. Feedback on the previous one:\n\ntwo tests fail\n"
    )


def test_an_assignment_survives_its_file(tmp_path: Path) -> None:
    found = replace(made(tmp_path), attempt=2, feedback="x", fresh=False)

    assert orchestrator.assignment_from_dict(orchestrator.assignment_to_dict(found)) == found


@pytest.mark.parametrize(
    ("said", "routes", "agent"),
    [
        ("", (), "default"),
        ("mine", (("impl", "routed"),), "routed"),
        ("mine", (("backend", "by-worker"),), "mine"),
        ("mine", (("impl", "mine"), ("impl_x", "routed")), "routed"),
        ("", (("impl", "routed"),), "routed"),
        ("", (("backend", "by-worker"),), "by-worker"),
        ("", (("frontend", "no"),), "default"),
    ],
)
def test_who_does_a_node(said: str, routes: tuple[tuple[str, str], ...], agent: str, tmp_path: Path) -> None:
    path = tmp_path / "a.dot"
    path.write_text(f'digraph a {{ impl_x [shape=box, worker_type="backend-engineer", agent="{said}"] }}')
    node = parser.read_pipeline(path).node("impl_x")
    assert node is not None
    profiles = tuple(Profile(name, "command") for name in ("default", "mine", "routed", "by-worker"))

    assert orchestrator.agent_for(node, Settings(agents=profiles, route_agents=routes)) == agent


def test_the_settings_say_what_a_node_does_not(tmp_path: Path) -> None:
    said = Settings(supervision=Supervision(stuck=60, judge="wise", style="quiet"))

    found = made(tmp_path, "other", said)

    assert (found.stuck, found.judge, found.style) == (60, "wise", "quiet")
