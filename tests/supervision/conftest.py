"""A maker of supervised projects, which ends every process of theirs. What drives whole layers is slow, but for a few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import supervision

#: with the README's command: everything about signals, screens and decisions, and of the rest what shows that it works
QUICK = {
    "test_ac_1_and_2_a_runner_watches_a_session_and_signals_needs_review_at_its_end",
    "test_ac_4_needs_review_leads_to_validation_and_a_transition",
    "test_ac_2_pipeline_complete_is_seen_and_processed",
    "test_a_step_in_a_pane_makes_its_artifact_and_the_run_goes_on",
}
WHOLE = ("test_epic_2", "test_epic_3", "test_epic_5", "test_steps_in_tmux")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Any]:
    yield from supervision.sites(tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith(WHOLE) and item.name not in QUICK:
            item.add_marker(pytest.mark.slow)
