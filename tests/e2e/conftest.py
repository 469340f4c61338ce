"""Runs that several files begin with."""

from __future__ import annotations

import pytest
from tests.support.decisions import ASKS, CALM, FLOW
from tests.support.project import Project


@pytest.fixture
def done(project: Project) -> Project:
    """A project with one finished run."""
    assert project.doit("tiny", "--goal=Log in by a link").returncode == 0
    return project


@pytest.fixture
def asking(project: Project) -> Project:
    project.flow("ask", FLOW)
    project.agent(ASKS)
    project.commit("A flow")
    return project


@pytest.fixture
def gated(asking: Project) -> Project:
    """At the gate of the plan, with no question open."""
    asking.agent(CALM)
    assert asking.doit("ask", "--goal=Log in").returncode == 2
    return asking


@pytest.fixture
def finished(gated: Project) -> Project:
    assert gated.doflow("approve").returncode == 0
    assert gated.doit("ask").returncode == 0
    gated.forget_calls()
    return gated
