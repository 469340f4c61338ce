"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import signal
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.project import Project


def pytest_configure() -> None:
    """A shell that starts the tests behind it (`pytest &` in a script) has them ignore ^C; what they start is not to."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with the scripted agent and nothing but a first commit."""
    return Project(tmp_path)


#: of the tests that drive whole processes one in this many runs with the README's command; `.ci/run` runs them all
SHARE = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same quarter every time, chosen by name, so that each file is in both halves."""
    for item in items:
        whole = {"e2e", "fault"} & set(item.path.parts)
        if whole and item.get_closest_marker("always") is None and zlib.crc32(item.nodeid.encode()) % SHARE:
            item.add_marker(pytest.mark.slow)
