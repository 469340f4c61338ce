"""A maker of supervised projects, which ends every process of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import supervision


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Any]:
    yield from supervision.sites(tmp_path)
