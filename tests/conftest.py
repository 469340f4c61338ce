"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with the scripted agent and nothing but a first commit."""
    return Project(tmp_path)
