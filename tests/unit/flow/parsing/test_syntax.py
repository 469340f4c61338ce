"""Small things as they are written: durations and paths."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings, strategies as st

from doflow.flow.parsing import syntax


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("1h1m1s", 3661), (45, 45), (1.5, 1.5), (0, 0)],
)
def test_durations_are_seconds(text: object, seconds: float) -> None:
    assert syntax.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1.5h", "30m1h", "10M", "-5s", " 5s", "5s\n", True, None, -1])
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(syntax.InvalidSyntax):
        syntax.seconds(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab./~$\\*-{}: \n\x00C", max_size=12))
def test_no_accepted_path_leaves_the_project(text: str) -> None:
    try:
        path = syntax.pattern(text)
    except syntax.InvalidSyntax:
        return
    inside = os.path.normpath(os.path.join("/root", path.lstrip("/")))
    assert inside.startswith("/root/")
    assert not set(path.lower().split("/")) & {"..", ".", ".git", ".doflow", ""} - (
        {""} if path.startswith("/") else set()
    )
