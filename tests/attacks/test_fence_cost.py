"""The fence costs at most five times one `git status` per step, in a repository of 10,000 files."""

from __future__ import annotations

import pytest
from bench import fence


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_watched_step_costs_at_most_five_times_a_git_status(tmp_path):
    ratios = fence.measure(tmp_path, 10_000, 3)

    assert min(ratios) <= fence.TARGET, ratios
