"""The test command that `doflow init` writes into doflow.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.cli.commands.init import find_test_command

FILES = {
    "pytest": ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
    "test files": ({"tests/test_a.py": ""}, "python3 -m pytest -q"),
    "npm": ({"package.json": '{"scripts": {"test": "vitest run"}}'}, "npm test"),
    "npm's default": ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ""),
    "cargo": ({"Cargo.toml": ""}, "cargo test"),
    "go": ({"go.mod": ""}, "go test ./..."),
    "make": ({"Makefile": "all:\n\ntest: all\n", "go.mod": ""}, "make test"),
    "two languages": ({"Cargo.toml": "", "go.mod": ""}, ""),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("files", "command"), FILES.values(), ids=FILES.keys())
def test_the_command_is_found_where_it_is_obvious(tmp_path: Path, files: dict[str, str], command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert find_test_command(tmp_path) == command
