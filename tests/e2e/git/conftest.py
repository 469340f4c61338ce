"""A git repository with a home of its own."""

from __future__ import annotations

import os

import pytest
from tests.support.git_repository import CONFIG, repository


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (folder / ".gitconfig").write_text(CONFIG)
    return folder


@pytest.fixture
def top(tmp_path):
    return repository(tmp_path / "r")
