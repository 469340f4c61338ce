"""Small rules of the hooks that need no process to be seen."""

from __future__ import annotations

from hypothesis import given, strategies as st

from doflow.hooks import session_store


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_texts_never_become_the_same_file_and_no_text_leads_anywhere(one: str, two: str) -> None:
    names = session_store.safe_name(one), session_store.safe_name(two)

    assert (names[0] == names[1]) is (one == two)
    assert all(
        0 < len(name) <= 200 and "/" not in name and not name.startswith(".") and name.isascii() for name in names
    )
