"""Globs: `*`, `**` and `?` are patterns, everything else is a plain character."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.flow.parsing import syntax
from doflow.util import globs

ROUTES = ("app/[id].tsx", "app/[...slug]/page.tsx", "app/[[...slug]]/page.tsx", "app/i.tsx", "app/d.tsx")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ROUTES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a.md", False), ("*.md", True), ("src/**", True), ("a?.md", True), *((route, False) for route in ROUTES)],
)
def test_only_a_star_and_a_question_mark_make_a_pattern(text: str, expected: bool) -> None:
    assert globs.is_pattern(text) is expected


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("app/*.tsx", ["app/[id].tsx", "app/d.tsx", "app/i.tsx"]),
        ("app/?.tsx", ["app/d.tsx", "app/i.tsx"]),
        ("app/[id].*", ["app/[id].tsx"]),
        ("app/[...slug]/*", ["app/[...slug]/page.tsx"]),
        ("app/**/page.tsx", ["app/[...slug]/page.tsx", "app/[[...slug]]/page.tsx"]),
        ("app/[[...slug]]/*.tsx", ["app/[[...slug]]/page.tsx"]),
        ("app/[!x]*", []),
        ("none/*", []),
    ],
)
def test_files_are_found_as_they_are_named(root: Path, glob: str, expected: list[str]) -> None:
    assert list(globs.find_files(root, glob)) == expected


@pytest.mark.parametrize("glob", ["app/[id].*", "app/*.tsx", "app/[...slug]/*", "app/[[...slug]]/*.tsx", "app/[!x]*"])
def test_what_is_found_is_what_matches(root: Path, glob: str) -> None:
    assert list(globs.find_files(root, glob)) == sorted(name for name in ROUTES if globs.matches((glob,), name))


def test_a_folder_is_no_file(root: Path) -> None:
    assert globs.find_files(root, "app/[...*") == ()


@pytest.mark.parametrize("route", ["app/[id].tsx", "/app/[...slug]/page.tsx", "app/[[...slug]]/page.tsx"])
def test_a_route_is_a_path_for_every_key_of_a_step(route: str) -> None:
    assert (syntax.artifact(route), syntax.pattern(route), syntax.parse_read(route).path) == (route, route, route)


def test_what_a_step_makes_is_no_pattern() -> None:
    with pytest.raises(ValueError, match="is a pattern, not one file"):
        syntax.artifact("app/*.tsx")
