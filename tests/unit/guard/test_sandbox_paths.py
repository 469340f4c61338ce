"""Which folders a glob opens and reaches, and how long a folder stays that was made for someone."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.guard import sandbox


@pytest.mark.parametrize(
    ("glob", "folders"),
    [
        ("lib/**", ("lib",)), ("/lib/a/*.py", ("lib", "a")), ("lib/a/", ("lib", "a")), ("/lib", ()), ("*.md", ()),
        ("a/*/b/c.py", ("a",)), ("/", ()),
    ],
)  # fmt: skip
def test_a_glob_opens_the_folders_that_it_names(glob: str, folders: tuple[str, ...]) -> None:
    assert sandbox.head(glob) == folders


@pytest.mark.parametrize(
    ("glob", "folder", "can"),
    [
        ("lib/**", "src", False), ("lib/**", "lib/a/b", True), ("lib/a/**", "lib", True), ("lib/*.py", "lib/a", False),
        ("lib/*.py", "lib", True), ("lib/*/x.py", "lib/a", True), ("*.md", "src", True), ("/lib", "lib/a", True),
        ("/README.md", "src", False), ("LIB/**", "lib/a", True), ("**/x", "src/a", True),
    ],
)  # fmt: skip
def test_a_folder_is_in_reach_where_something_below_it_can_be_meant(glob: str, folder: str, can: bool) -> None:
    assert sandbox.reaches(glob, folder) is can


def test_a_folder_that_was_made_stays_while_someone_works_in_it(tmp_path: Path) -> None:
    first = sandbox.make(str(tmp_path), ("lib/a/**",))
    second = sandbox.make(str(tmp_path), ("lib/b/**", "lib/a/*.py"))
    sandbox.leave(first)
    assert (tmp_path / "lib/a").is_dir()

    sandbox.leave(second)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_or_is_filled_is_kept(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    made = sandbox.make(str(tmp_path), ("old/**", "new/**"))
    (tmp_path / "new/x").write_text("mine")

    sandbox.leave(made)

    assert made == (str(tmp_path / "new"),)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_nothing_is_made_behind_a_link_or_in_git(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("x")

    assert sandbox.make(str(tmp_path), ("link/a/**", ".git/a/**", "../a/**", "file/a/**")) == ()
