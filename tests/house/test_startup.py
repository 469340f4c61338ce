"""Start-up is sacred: what a run in which nothing is to be done may not import."""

from __future__ import annotations

import pytest
from tests.support.project import Project

TIMES = {"PYTHONPROFILEIMPORTTIME": "1"}
HEAVY = {"yaml", "jsonschema", "git", "gitdb", "rich", "psutil", "hypothesis", "subprocess", "asyncio", "http", "email"}


def imported(stderr: str) -> set[str]:
    """The modules that a program imported, by what `-X importtime` wrote."""
    rows = [line for line in stderr.splitlines() if line.startswith("import time:")]
    found = {row.rsplit("|", 1)[1].strip() for row in rows}
    assert "os" in found, "nothing was measured"
    return found


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.fixture
def finished(project: Project) -> Project:
    done = project.doit("tiny", "--goal=Say hello")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def test_doit_with_nothing_to_do_imports_no_yaml_no_git_no_schema_no_rich(finished: Project) -> None:
    done = finished.doit("tiny", env=TIMES)

    assert (done.returncode, finished.calls()) == (0, [])
    modules = imported(done.stderr)
    assert "doflow.glue" in modules, "our run command was not in it"
    assert tops(modules) & (HEAVY - _doits_own()) == set()
    assert {"doflow.world", "doflow.load", "doflow.process", "doflow.repo.git"} & modules == set()


def test_doflow_run_with_nothing_to_do_does_not_even_import_doit(finished: Project) -> None:
    done = finished.doflow("run", "tiny", env=TIMES)

    assert (done.returncode, finished.calls()) == (0, [])
    assert "nothing to do" in done.stdout
    modules = imported(done.stderr)
    assert tops(modules) & (HEAVY | {"doit", "argparse", "sqlite3", "json"}) == set()


def test_a_cached_flow_is_not_parsed_again_when_a_step_is_to_be_done(finished: Project) -> None:
    finished.run_dir().joinpath("spec.md").write_text("# Spec\n\n## Requirements\n\nAnother one.\n")

    done = finished.doit("tiny", env=TIMES)

    assert done.returncode == 0, done.stdout
    assert tops(imported(done.stderr)) & {"yaml", "jsonschema"} == set()
    assert finished.calls()[0] == "plan"


def _doits_own() -> set[str]:
    """What stock doit imports by itself is not ours to mend."""
    import subprocess
    import sys

    done = subprocess.run(
        (sys.executable, "-X", "importtime", "-c", "import doit.doit_cmd, doit.cmd_run"),
        capture_output=True,
        text=True,
        check=True,
    )
    return tops(imported(done.stderr))
