"""The architecture as a rule: layers, the size of folders and modules, the base install."""

from __future__ import annotations

import ast
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

TOP = Path(__file__).parents[2]
SOURCES = TOP / "src" / "doflow"
#: one file per member: these folders are flat, however many there are
FAMILIES = {"cli/commands", "agents/adapters", "engine/steps", "importers"}
MODULES = [path for path in sorted(SOURCES.rglob("*.py")) if "__pycache__" not in path.parts]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "src"), "HOME": str(folder)}
    return subprocess.run(
        [str(program), "--no-cache"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_packages_import_only_lower_layers(tmp_path: Path) -> None:
    shutil.copytree(TOP / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "pyproject.toml", tmp_path)

    kept = lint_imports(tmp_path)
    module = tmp_path / "src" / "doflow" / "util" / "text.py"
    module.write_text(module.read_text() + "\n\nfrom doflow.cli import output as output\n")
    broken = lint_imports(tmp_path)

    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "doflow.util.text -> doflow.cli.output" in broken.stdout


def test_folders_and_modules_stay_small() -> None:
    entries = Counter(str(entry.parent) for entry in {path for module in MODULES for path in _steps(module)})
    lines = {str(path.relative_to(SOURCES)): path.read_text().count("\n") for path in MODULES}

    assert entries["."] <= 14
    assert {name: count for name, count in entries.items() if count > 16 and name not in FAMILIES} == {}
    assert {name: count for name, count in lines.items() if count > 500} == {}
    assert statistics.quantiles(lines.values(), n=20)[-1] <= 300
    assert len(lines) <= 295
    assert sum(lines.values()) <= 46_000


def _steps(module: Path) -> list[Path]:
    """A module and the folders it is in, relative to the package."""
    path = module.relative_to(SOURCES)
    return [path, *path.parents[:-1]]


def test_imports_inside_functions_are_few() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in MODULES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert len(set(found)) <= 120


def test_the_base_install_is_five_libraries() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]

    names = {re.split(r"[<>=]", requirement)[0] for requirement in project["dependencies"]}

    assert names == {"doit", "PyYAML", "jsonschema", "GitPython", "rich"}
