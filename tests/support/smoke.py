"""The marker `smoke`: which tests that drive whole processes run with the README's test command."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

#: cases that a marker names and no test has, for the test that refuses them
UNKNOWN = pytest.StashKey[list[str]]()


def is_smoke(item: pytest.Item) -> bool:
    """`smoke` takes every case of a parametrized test, `smoke("one", "two")` those with these ids."""
    mark = item.get_closest_marker("smoke")
    return mark is not None and (not mark.args or item.name in case_names(item, mark))


def unknown_cases(items: Iterable[pytest.Item]) -> list[str]:
    """What `smoke` names although there is no such case: one that was renamed would leave the README's tests unnoticed."""
    cases = {(item.path, item.name) for item in items}
    named = {
        (item.path, name) for item in items for mark in item.iter_markers("smoke") for name in case_names(item, mark)
    }
    return sorted(f"{path.name}::{name}" for path, name in named - cases)


def case_names(item: pytest.Item, mark: pytest.Mark) -> list[str]:
    return [f"{item.name.partition('[')[0]}[{case}]" for case in mark.args]
