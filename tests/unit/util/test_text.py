"""What is said to a person, and what a goal is called."""

from __future__ import annotations

import pytest

from doflow.util import text


@pytest.mark.parametrize(
    ("goal", "name"),
    [
        ("Log in with a link, please", "log-in-with-a"),
        ("Ünï cödé, straße", "uni-code-strasse"),
        ("日本語", ""),
        ("x" * 40, "x" * 30),
    ],
)
def test_a_goal_becomes_a_name_of_plain_letters(goal: str, name: str) -> None:
    assert text.slug(goal) == name
