"""Stories of BMAD in the order of sprint-status.yaml, and the flow of Kiro."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.flow.parsing import loader
from doflow.importers import bmad, kiro
from doflow.importers.model import Found, NothingToImport, NotMapped
from doflow.importers.project_tree import list_project
from doflow.util.errors import FlowError

STATUS = """\
# story_location: elsewhere
generated: 05-06-2025 21:30
story_location: "plan/stories"
development_status:
  epic-1: in-progress
  1-1-login: done
  1-3-reset: in-progress
  1-2-logout: ready-for-dev
  1-4-later: backlog
  epic-1-retrospective: optional
"""


def put(root: Path, **files: str) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_stories_that_are_ready_become_steps_in_the_order_of_the_sprint(tmp_path: Path) -> None:
    stories = {f"plan/stories/{key}.md": "- [ ] Task 1: x\n" for key in ("1-1-login", "1-2-logout", "1-3-reset")}
    put(tmp_path, **{"out/sprint-status.yaml": STATUS, **stories})

    (made,) = bmad.convert_file(list_project(tmp_path), "out/sprint-status.yaml")

    put(tmp_path, **{file.path: file.text for file in made.files})
    loader.load_flow(tmp_path / "flows/bmad.yaml", tmp_path)
    steps = loader.load_document(tmp_path / "flows/bmad.yaml").value["steps"]
    assert list(steps) == ["story-1-3-reset", "review-1-3-reset", "story-1-2-logout", "review-1-2-logout"]
    assert steps["story-1-2-logout"]["phases"] == "/plan/stories/1-2-logout.md"
    assert steps["review-1-2-logout"]["run"] == ["doflow", "tasks", "done", "out/sprint-status.yaml", "1-2-logout"]
    what, why = "story 1-4-later (backlog)", "it has no story file yet: write it with BMAD first"
    assert made.not_mapped == (NotMapped("out/sprint-status.yaml", 9, what, why),)


def test_a_sprint_without_ready_stories_is_nothing_to_import(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{"sprint-status.yaml": "development_status:\n  1-1-a: done\n", "bad.yaml": "development_status: 1\n"},
    )
    tree = list_project(tmp_path)

    with pytest.raises(NothingToImport, match="no story is ready to be built"):
        list(bmad.convert_file(tree, "sprint-status.yaml"))
    with pytest.raises(FlowError, match=r"bad\.yaml:1:1: not a sprint-status\.yaml of BMAD"):
        list(bmad.convert_file(tree, "bad.yaml"))


def test_kiro_goes_from_requirements_to_code_with_a_gate_each(tmp_path: Path) -> None:
    put(tmp_path, **{".kiro/specs/a/requirements.md": "R", ".kiro/hooks/lint.kiro.hook": "{}"})
    tree = list_project(tmp_path)
    found = kiro.find(tree)
    assert isinstance(found, Found)

    (made,) = kiro.convert(tree, found)

    put(tmp_path, **{file.path: file.text for file in made.files})
    flow = loader.load_flow(tmp_path / "flows/kiro.yaml", tmp_path)
    assert [(step.id, bool(step.gate)) for step in flow.steps] == [
        ("requirements", True), ("design", True), ("tasks", True), ("implement", False),
    ]  # fmt: skip
    assert made.not_mapped == (NotMapped(".kiro/hooks/lint.kiro.hook", 1, "agent hook", "hooks of Kiro are not run"),)
