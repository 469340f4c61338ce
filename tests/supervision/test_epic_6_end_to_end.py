"""Epic 6: all four layers on a pipeline of one node and one gate, with a shell agent."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.supervision import FLOW_OF_SIGNALS, gated, needs_tmux, proven

pytestmark = [pytest.mark.smoke, needs_tmux, pytest.mark.timeout(240)]


def test_ac_1_to_7_with_a_shell_agent(site: Any) -> None:
    """R2.112 to R2.118, where no CLI of a vendor is installed."""
    here = site(
        'echo "$DOFLOW_NODE at work"; echo "Hello, guardian." > hello.txt; git add hello.txt; git commit -qm hello'
    )
    gated(here)

    done = here.doflow("guardian", "launch", "p.dot", timeout=60)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p") == FLOW_OF_SIGNALS
    review = next(one for one in here.said("p") if one["signal_type"] == "NEEDS_REVIEW")
    assert review["payload"]["commit_hash"] == here.git("rev-parse", "HEAD").strip()
