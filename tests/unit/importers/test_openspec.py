"""Schemas of OpenSpec as flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doflow.flow.parsing import loader
from doflow.importers import openspec
from doflow.importers.model import Imported, NotMapped
from doflow.importers.project_tree import list_project
from doflow.util.errors import FlowError

FILE = "openspec/schemas/loop/schema.yaml"
SCHEMA = """\
name: loop
version: 1
artifacts:
  - {id: list, generates: list.md, template: list.md, instruction: "List {what} to do.", requires: [idea, facts]}
  - {id: idea, generates: idea.md, template: none.md, description: The idea., requires: []}
  - {id: facts, generates: "facts/**/*.md", requires: [idea]}
apply: {requires: [list], tracks: list.md, instruction: Do it.}
owner: me
"""


def converted(root: Path, text: str) -> tuple[Imported, dict[str, Any]]:
    for path, content in {FILE: text, "openspec/schemas/loop/templates/list.md": "# List"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    (made,) = openspec.convert_file(list_project(root), FILE)
    for file in made.files:
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        (root / file.path).write_text(file.text)
    loader.load_flow(root / "flows/loop.yaml", root)
    return made, loader.load_document(root / "flows/loop.yaml").value["steps"]


def test_artifacts_become_steps_in_the_order_of_what_they_require(tmp_path: Path) -> None:
    made, steps = converted(tmp_path, SCHEMA)

    assert list(steps) == ["idea", "facts", "list", "implement"]
    assert steps["facts"]["writes"] == ["{run_dir}/facts/**/*.md"]
    assert steps["list"]["reads"][:3] == ["input.md", "idea.md", "facts/**/*.md?"]
    assert steps["list"]["reads"][-1] == "/openspec/schemas/loop/templates/list.md"
    assert (steps["list"]["makes"], steps["list"]["check"], steps["list"]["after"]) == (
        "list.md",
        {"tasks": True},
        ["idea", "facts"],
    )
    assert (steps["implement"]["kind"], steps["implement"]["phases"]) == ("implement", "list.md")
    assert {file.path: file.text for file in made.files[1:]} == {
        "flows/prompts/loop-idea.md": "The idea.\n",
        "flows/prompts/loop-facts.md": "Write the artifact facts of this change.\n",
        "flows/prompts/loop-list.md": "List {what} to do.\n",
        "flows/prompts/loop-apply.md": "Do it.\n",
    }
    assert made.not_mapped == (
        NotMapped(FILE, 5, "template none.md", "not found in openspec/schemas/loop/templates"),
        NotMapped(FILE, 6, "generates facts/**/*.md", "the step may write these files, it is not checked that it did"),
        NotMapped(FILE, 8, "key `owner`", "not known"),
    )


def test_without_tracked_tasks_the_work_is_one_call(tmp_path: Path) -> None:
    _, steps = converted(tmp_path, SCHEMA.replace("tracks: list.md", "tracks: null"))

    assert steps["implement"]["writes"] == ["**"]


BAD = {
    "artifacts: 1": "a schema of OpenSpec has a list of `artifacts`",
    "artifacts: [{id: a}]": "an artifact needs `id` and `generates`",
    "artifacts: [{id: a, generates: ../x.md}]": "the path '../x.md' has a ..",
    "artifacts: [{id: a, generates: /x.md}]": "the path '/x.md' is not in the folder of the change",
    "artifacts: [{id: A b, generates: x.md}]": "'A b' is not a valid name",
    "artifacts: [{id: a, generates: x.md}, {id: a, generates: y.md}]": "duplicate artifact 'a'",
    "artifacts: [{id: a, generates: x.md, requires: [b]}]": "unknown artifact 'b'",
    "artifacts: [{id: a, generates: x.md, requires: b}]": "unknown artifact 'b'",
    "artifacts: [{id: a, generates: x.md, requires: [b]}, {id: b, generates: y.md, requires: [a]}]": (
        "dependency cycle: a -> b -> a"
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_a_broken_schema_is_one_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(FlowError) as caught:
        converted(tmp_path, f"name: loop\n{text}\n")

    assert [problem.message for problem in caught.value.problems] == [BAD[text]]
    assert caught.value.problems[0].line in (1, 2)
