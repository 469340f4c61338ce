"""The files of a project: what is listed, what is skipped, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.importers import project_tree
from doflow.importers.project_tree import list_project, parse_json
from doflow.util.errors import FlowError


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")


def test_dependencies_and_ignored_folders_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a.md", ".kiro/specs/x/tasks.md", "node_modules/y/.kiro/specs/z/tasks.md", ".git/config", "big/b.md")
    (tmp_path / "loop").symlink_to(tmp_path)

    tree = list_project(tmp_path, {"big"})

    assert tree.files == (".kiro/specs/x/tasks.md", "a.md")
    assert tree.folders == {".kiro", ".kiro/specs", ".kiro/specs/x"}
    assert tree.complete


def test_the_listing_has_a_limit_and_takes_the_top_first(tmp_path: Path) -> None:
    put(tmp_path, *(f"deep/{number}.md" for number in range(20)), "top.md")

    tree = list_project(tmp_path, limit=10)

    assert not tree.complete
    assert "top.md" in tree.files
    assert len(tree.files) <= 10


BAD = {
    '{"a": 1, "a": 2}': "duplicate key 'a'",
    '{"a": ': "not JSON: Expecting value",
    "[" * 100_000: "not JSON that can be read: nested too deeply",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_bad_json_is_one_error(text: str) -> None:
    with pytest.raises(FlowError) as caught:
        parse_json(text, "x.json", 7)

    assert [(one.line, one.message) for one in caught.value.problems] == [(7, BAD[text])]


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.json")
    monkeypatch.setattr(project_tree, "LARGEST", 0)

    with pytest.raises(FlowError, match="is larger than 0 bytes"):
        list_project(tmp_path).read_json("a.json")
