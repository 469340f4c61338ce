"""The fence costs a few times one `git status` per step, in a repository of 10,000 files. `python -m bench.fence --check`
holds it to five; here, where anything may run beside it, only what would be another order of magnitude fails."""

from __future__ import annotations

import pytest
from bench import fence


@pytest.mark.timeout(400)
def test_a_watched_step_costs_a_few_times_a_git_status(tmp_path):
    ratios = fence.measure(tmp_path, 10_000, 3)

    assert min(ratios) <= 3 * fence.TARGET, ratios
