"""Small rules of the hooks that need no process to be seen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from doflow.hooks import events, session_store as store


@given(st.integers(min_value=0, max_value=4_102_444_800))
def test_a_time_of_ours_is_read_as_it_was_written(moment: int) -> None:
    text = events.iso(moment)

    assert text == datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert events.seconds(text) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-11-16 10:25:29Z", "2026-11-16T10:25:29+01:00", "2026-xx-16T10:25:29Z"]
)
def test_what_is_no_time_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        events.seconds(text)


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_texts_never_become_the_same_file_and_no_text_leads_anywhere(one: str, two: str) -> None:
    names = store.named(one), store.named(two)

    assert (names[0] == names[1]) is (one == two)
    assert all(
        0 < len(name) <= 200 and "/" not in name and not name.startswith(".") and name.isascii() for name in names
    )
