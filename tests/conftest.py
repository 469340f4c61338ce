"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support import smoke
from tests.support.project import Project

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    """A shell that starts the tests behind it (`pytest &` in a script) has them ignore ^C; what they start is not to."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with the scripted agent and nothing but a first commit."""
    return Project(tmp_path)


#: folders whose tests drive whole processes: a test in them is slow unless it is marked smoke
SLOW_FOLDERS = {"attacks", "e2e", "fault", "supervision"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what the README's test command leaves to `.ci/run`.

    The smoke tests are chosen by hand. Together they cover every feature once (freshness, lock file, event log, commits,
    gates, reviews, phases, routes, sub-flows, foreach, DOT pipelines, prd sessions, budgets, rate limits, hooks, supervision,
    doit's own commands, every exit code) and the faults that would cost a person most: a kill between two writes, a kill
    during a repair, torn or lost state, writes out of scope. A new feature brings a smoke test of its
    own; its variants stay slow.
    """
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS and not smoke.is_smoke(item):
            item.add_marker(pytest.mark.slow)
    config.stash[smoke.UNKNOWN] = smoke.unknown_cases(items)
