"""What the fast paths do not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import hooks
from tests.support.hooks import Asking
from tests.support.project import Project

HEAVY = {"doit", "yaml", "jsonschema", "git", "gitdb", "rich", "sqlite3"}
MEASURED = """\
import atexit, sys
atexit.register(lambda: sys.stderr.write("IMPORTED " + " ".join(sys.modules) + "\\n"))
sys.argv = {words!r}
from {module} import main
sys.exit(main())
"""


def measured(project: Project, module: str, *words: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """A real run of a program, and every module that it had imported at its end."""
    code = MEASURED.format(words=list(words), module=module)
    done = subprocess.run(
        (sys.executable, "-c", code), cwd=project.root, env=project.env, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("IMPORTED "), done.stderr
    return done, set(last.split()[1:])


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.fixture
def finished(project: Project) -> Project:
    done = project.doit("tiny", "--goal=Say hello")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def test_doflow_run_with_nothing_to_do_imports_no_doit_yaml_or_git(finished: Project) -> None:
    done, modules = measured(finished, "doflow.cli.main", "doflow", "run", "tiny")

    assert (done.returncode, finished.calls()) == (0, [])
    assert "nothing to do" in done.stdout
    assert tops(modules) & HEAVY == set()


def test_a_hook_imports_no_library(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    code = MEASURED.format(words=["doflow", "hook", "PreToolUse"], module="doflow.cli.main")
    data = json.dumps(asking.payload("PreToolUse")).encode()

    done = subprocess.run(
        (sys.executable, "-I", "-c", code),
        input=data,
        cwd=asking.root,
        env=asking.env,
        capture_output=True,
        check=False,
    )

    modules = set(done.stderr.decode().splitlines()[-1].split()[1:])
    assert "doflow.hooks.handler" in modules
    assert tops(modules) & HEAVY == set()


@pytest.mark.slow
def test_a_hook_call_costs_at_most_twice_the_smallest_python_that_reads_json() -> None:
    """With 1000 transitions; p95 at most three times. A busy machine may spoil one measurement, not three."""
    missed: list[str] = []
    for _ in range(3):
        missed = hooks.misses(hooks.measure(25))
        if not missed:
            return
    assert missed == []
