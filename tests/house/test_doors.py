"""A library comes in by one door, and nothing comes in that we do not declare."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest
from tests.support import house

DOORS = {
    "yaml": {"flow.parsing.yaml_reader"},
    "jsonschema": {"flow.parsing.schema"},
    "git": {"git.runner"},
    "rich": {"engine.view.live"},
    "doit": {
        "engine.doit.tasks",
        "engine.doit.groups",
        "engine.doit.task_types",
        "engine.doit.actions",
        "engine.doit.command",
        "engine.doit.backend",
        "cli.commands.run.run",
    },
    "libtmux": {"supervise.panes.tmux"},
    "subprocess": {"util.process.runner", "git.runner_quick"},
}


@pytest.mark.parametrize("library", DOORS)
def test_a_library_comes_in_by_its_own_door(library: str) -> None:
    users = {module for module, path in house.modules().items() if library in house.libraries(path)}

    assert users - DOORS[library] == set()


def test_no_other_library_comes_in_at_all() -> None:
    project = tomllib.loads((house.TOP / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=]", line)[0].lower() for line in project["dependencies"]}
    used = set().union(*(house.libraries(path) for path in house.modules().values()))

    foreign = used - sys.stdlib_module_names - {"doflow"}

    assert foreign - set(DOORS) == set()
    assert declared == {"doit", "gitpython", "jsonschema", "pyyaml", "rich"}


@pytest.mark.parametrize("library", ["yaml", "jsonschema", "git", "rich", "libtmux", "subprocess"])
def test_a_heavy_library_is_imported_inside_a_function(library: str) -> None:
    eager = {
        module
        for module, path in house.modules().items()
        for node in house.tree(path).body
        if library in {name.partition(".")[0] for name in _imported(node)}
    }

    assert eager == set()


def _imported(node: object) -> list[str]:
    import ast

    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_nobody_starts_a_program_behind_the_doors_back() -> None:
    found = [
        f"{module}:{number}: {line.strip()}"
        for module, path in house.modules().items()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bos\.(system|popen|spawn\w+|exec\w+|posix_spawn\w*|fork)\(", line)
        and module
        not in (
            "util.process.runner",
            "util.process.supervisor",
            "cli.commands.project.demo",
            "supervise.panes.launcher",
            "supervise.daemon",
        )
    ]

    assert found == []
