"""Start-up is sacred: what a run in which nothing is to be done may not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import hooks
from tests.support.hooks import Asking
from tests.support.project import Project

HEAVY = {"yaml", "jsonschema", "git", "gitdb", "rich", "psutil", "argparse", "asyncio", "http", "difflib", "ctypes"}
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


def test_doit_with_nothing_to_do_imports_no_yaml_no_git_no_schema_no_rich(finished: Project) -> None:
    done, modules = measured(finished, "doit.__main__", "doit", "tiny")

    assert (done.returncode, finished.calls()) == (0, [])
    assert "doflow.engine.doit.command" in modules, "our run command was not in it"
    assert tops(modules) & (HEAVY - _stock()) == set()
    assert {
        "doflow.runs.context",
        "doflow.flow.parsing.loader",
        "doflow.util.process.runner",
        "doflow.git.runner",
    } & modules == set()


def test_doflow_run_with_nothing_to_do_does_not_even_import_doit(finished: Project) -> None:
    done, modules = measured(finished, "doflow.cli.main", "doflow", "run", "tiny")

    assert (done.returncode, finished.calls()) == (0, [])
    assert "nothing to do" in done.stdout
    assert tops(modules) & (HEAVY | {"doit", "sqlite3", "json", "subprocess", "re"}) == set()


def test_a_flow_that_is_known_is_not_parsed_again_when_one_of_its_steps_is_to_be_done(finished: Project) -> None:
    finished.run_dir().joinpath("spec.md").write_text("# Spec\n\n## Requirements\n\nAnother one.\n")

    done, modules = measured(finished, "doit.__main__", "doit", "tiny")

    assert (done.returncode, finished.calls()[0]) == (0, "plan"), done.stdout
    assert tops(modules) & {"yaml", "jsonschema", "rich"} == set()


def test_a_hook_imports_next_to_nothing(tmp_path: Path) -> None:
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
    ours = {module for module in modules if module.startswith("doflow")}
    assert ours == {
        "doflow",
        "doflow.cli",
        "doflow.cli.main",
        "doflow.hooks",
        *(f"doflow.hooks.{name}" for name in ("events", "handler", "state_machine", "session_store")),
    }
    stock = subprocess.run(
        (sys.executable, "-I", "-c", "import json, sys; print(*sys.modules)"), capture_output=True, check=True
    )
    more = modules - ours - set(stock.stdout.decode().split())
    assert more <= {"__future__", "atexit", "fcntl", "signal"}, more


@pytest.mark.slow
def test_a_hook_call_costs_at_most_twice_the_smallest_python_that_reads_json() -> None:
    """With 1000 transitions; p95 at most three times. A busy machine may spoil one measurement, not three."""
    missed: list[str] = []
    for _ in range(3):
        missed = hooks.misses(hooks.measure(25))
        if not missed:
            return
    assert missed == []


def _stock() -> set[str]:
    """What doit and this Python import by themselves is not ours to mend."""
    code = "import sys, doit.doit_cmd, doit.cmd_run, sqlite3; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    return tops(set(done.stdout.split()))
