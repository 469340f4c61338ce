"""Does the README's test command run what is chosen for it?"""

from __future__ import annotations

import pytest
from tests.support import smoke


def test_every_case_that_a_smoke_mark_names_exists(request: pytest.FixtureRequest) -> None:
    assert request.config.stash[smoke.UNKNOWN] == []
