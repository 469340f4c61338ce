"""The modules of a run come out of one file; it is a cache, and nothing depends on it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import house
from tests.support.project import Project

FLOW = """\
flow: work
params: {goal: {about: what to do}}
steps:
  one: {kind: shell, run: ["true"]}
"""
#: doit's own main; at its end how many modules of doflow came out of the bundle, and how many did not
COUNTED = """\
import atexit, sys


def tell():
    kinds = [type(module.__loader__).__name__ for name, module in sys.modules.items() if name.startswith("doflow.")]
    sys.stderr.write(f"BUNDLED {kinds.count('_Loader')} {len(kinds) - kinds.count('_Loader')}\\n")


atexit.register(tell)
sys.argv[0] = "doit"
from doit.__main__ import main
sys.exit(main())
"""

MOST = 40


@pytest.fixture
def own(project: Project, tmp_path: Path) -> Project:
    """A project whose doflow keeps its compiled files apart from everybody else's."""
    project.env["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")
    project.flow("work", FLOW)
    project.commit()
    return project


def run(project: Project, *words: str) -> tuple[int, int]:
    """A first run with another goal each time: modules out of the bundle, modules out of files."""
    done = subprocess.run(
        (sys.executable, "-c", COUNTED, "work", f"--goal={len(project.runs())}", "--new", *words),
        cwd=project.root, env=project.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    bundled, plain = done.stderr.splitlines()[-1].removeprefix("BUNDLED ").split()
    return int(bundled), int(plain)


def place(tmp_path: Path) -> Path:
    (found,) = tmp_path.glob("compiled/**/bundled.*.pyc")
    return found


def test_the_second_run_takes_nearly_all_its_modules_out_of_one_file(own: Project) -> None:
    first = run(own)
    second = run(own)

    assert first[0] == 0
    assert second[0] > MOST
    assert second[1] < 30, "what doit's plugin and dodo.py import before a run is known to be one"


def test_a_run_that_needs_more_adds_it_and_keeps_the_rest(own: Project, tmp_path: Path) -> None:
    run(own)
    size = place(tmp_path).stat().st_size
    own.flow("other", "flow: other\nsteps:\n  say: {prompt: Say it, makes: said.md}\n")
    own.commit()

    assert own.doit("other", "--goal=x", "--new").returncode == 0

    grown = place(tmp_path).stat()
    assert grown.st_size > size
    own.doit("other", "--goal=y", "--new")
    assert run(own)[0] > MOST
    assert place(tmp_path).stat().st_ino == grown.st_ino, "it was written again although nothing was missing"


@pytest.mark.parametrize("torn", ["", "short", "garbage", "of another Python", "table"])
def test_a_bundle_that_is_torn_is_as_good_as_none_and_mended(torn: str, own: Project, tmp_path: Path) -> None:
    run(own)
    target = place(tmp_path)
    whole = target.read_bytes()
    spoiled = {
        "": b"",
        "short": whole[: len(whole) // 2],
        "garbage": b"\xff" * len(whole),
        "of another Python": whole.replace(whole[9:13], b"\0\0\r\n", 1),
        "table": whole[:13] + b"\xff\xff\xff\x7f" + whole[17:],
    }
    target.write_bytes(spoiled[torn])

    assert run(own)[0] == 0
    assert run(own)[0] > MOST


def test_a_module_that_was_changed_is_not_taken_out_of_the_bundle(own: Project, tmp_path: Path) -> None:
    mine = tmp_path / "site" / "doflow"
    shutil.copytree(house.TOP / "src" / "doflow", mine, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("flows", "schemas"):
        shutil.copytree(house.TOP / name, mine / "_data" / name)
    own.env["PYTHONPATH"] = str(mine.parent)
    run(own)
    with_all = run(own)
    changed = mine / "engine" / "lifecycle" / "start.py"
    changed.write_text(changed.read_text() + "\nOTHERWISE = True\n")

    assert run(own) == (with_all[0] - 1, with_all[1] + 1)
    assert run(own) == with_all


def test_where_python_may_not_keep_compiled_files_no_bundle_is_written(own: Project, tmp_path: Path) -> None:
    own.env["PYTHONDONTWRITEBYTECODE"] = "1"

    assert run(own)[0] == run(own)[0] == 0
    assert list(tmp_path.glob("compiled/**/*.pyc")) == []


def test_a_command_that_finds_nothing_to_do_does_not_read_it(own: Project, tmp_path: Path) -> None:
    run(own)
    place(tmp_path).unlink()

    assert own.doit("work").returncode == 0
    assert own.doflow("status").returncode == 0

    assert list(tmp_path.glob("compiled/**/bundled.*.pyc")) == []
