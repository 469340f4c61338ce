"""A run inside a run, as real process trees: whoever starts one is refused, and nothing is harmed (R0.24 to R0.28)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import prd
from tests.support.project import PROGRAMS, Project

pytestmark = pytest.mark.timeout(300)
MESSAGE = "Nested PRP Pipeline execution detected. Only bug fix sessions can recurse. PID: {}"

#: starts pipelines and writes down what came of it, and what was there before and after
ATTEMPT = """
import hashlib, json, os, pathlib, subprocess, sys

name, root, log = sys.argv[1:4]

def seen():
    plan = pathlib.Path(root, "plan")
    tasks = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in plan.rglob("tasks.json")}
    return [sorted(str(path) for path in (*plan.glob("*_*"), *plan.glob("*_*/bugfix/*_*"))), tasks]

flags = {"SKIP_BUG_FINDING": "true"}
bugfix = "--feature-dir=plan/001_0123456789ab/bugfix/001_0123456789ab"
bare = {key: os.environ[key] for key in ("PATH", "HOME")}
for words, env in (
    (["doit", "prd"], os.environ),
    (["doflow", "run", "prd", "--new", "--goal=Another"], os.environ),
    (["doit", "prd", "--new"], {**os.environ, **flags}),
    (["doit", "prd", bugfix], os.environ),
    (["doit", "prd", bugfix], {**os.environ, **flags}),
    (["doit", "prd", bugfix], {**os.environ, **flags, "DOFLOW_LOCK_FD": "0"}),
    (["doit", "prd", "--new"], bare),
    (["doit", "prd", "--new"], {**bare, "PRP_PIPELINE_RUNNING": "4194304"}),
):
    before = seen()
    done = subprocess.run(words, env=env, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    told = {"who": name, "words": words, "code": done.returncode, "err": done.stderr, "out": done.stdout,
            "running": os.environ.get("PRP_PIPELINE_RUNNING"), "flag": os.environ.get("SKIP_BUG_FINDING"),
            "same": before == seen()}
    with open(log, "a") as file:
        file.write(json.dumps(told) + "\\n")
open(log + "." + name, "w").close()
"""

AGENT = """
import subprocess, sys, time

def attempt(name):
    return [sys.executable, str(outside / "attempt.py"), name, str(root), str(outside / "attempts.jsonl")]

mending = "bugfix" in run_dir.parts
if phase == "P1.M1.T1.S1":
    subprocess.run(attempt("bug-fix session" if mending else "implementation agent"), check=True)
elif step == "research:p1-m1-t1-s2":
    subprocess.Popen(attempt("background process"), start_new_session=True)
    until = time.monotonic() + 60
    while not (outside / "attempts.jsonl.background process").exists() and time.monotonic() < until:
        time.sleep(0.05)
elif step == "validate" and not mending:
    words = " ".join(f"'{word}'" for word in attempt("validation script"))
    make(f"test -d src || exit 1\\n{words} || exit 1\\n")
    done = True
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, subprocess.CompletedProcess[str], list[dict]]:
    """A whole session with a bug-fix session in it, in which everybody starts pipelines."""
    project = prd.project(tmp_path_factory.mktemp("nested"))
    (project.outside / "attempt.py").write_text(ATTEMPT)
    project.agent(prd.good(bugs=1, before=AGENT))
    done = project.doit("-n", "2", "prd", timeout=240)
    lines = (project.outside / "attempts.jsonl").read_text().splitlines()
    return project, done, [json.loads(line) for line in lines]


def of(tried: Any, who: str) -> list[dict]:
    found = [entry for entry in tried[2] if entry["who"] == who]
    assert len(found) == 8
    return found


@pytest.mark.parametrize(
    "who",
    ["implementation agent", "validation script", "bug-fix session", "background process"],
    ids=["r0_24", "r0_25", "r0_26", "r0_27"],
)
def test_whoever_starts_a_pipeline_inside_one_is_refused_and_harms_nothing(tried: Any, who: str) -> None:
    attempts = of(tried, who)

    assert [(entry["code"], entry["same"], entry["out"]) for entry in attempts] == [(1, True, "")] * 8
    running = attempts[0]["running"]
    assert [entry["err"] for entry in attempts[:4]] == [f"ERROR: {MESSAGE.format(running)}\n"] * 4
    assert ["another run is active in" in entry["err"] for entry in attempts[4:7]] == [True] * 3
    assert attempts[7]["err"] == f"ERROR: {MESSAGE.format('4194304')}\n"
    assert {entry["flag"] for entry in attempts} == {None}


def test_r0_28_the_run_that_was_disturbed_ends_as_if_it_had_not_been(tried: Any) -> None:
    project, done, attempts = tried

    assert (done.returncode, done.stderr) == (0, "")
    assert len(prd.sessions(project)) == 2
    assert {status for name in prd.sessions(project) for status in prd.statuses(project, name).values()} == {"Complete"}
    assert len({entry["running"] for entry in attempts}) == 2, "the session's process, and the bug-fix session's"


def test_r0_12_the_variable_holds_the_process_of_the_run_and_of_the_bug_fix_session(tried: Any) -> None:
    project, _, attempts = tried

    pids = {str(entry["pid"]) for name in ("001_*[0-9a-f]",) for path in (project.root / ".doflow/runs").glob(name)
            for entry in map(json.loads, (path / "events.jsonl").read_text().splitlines()) if "pid" in entry}  # fmt: skip

    assert {entry["running"] for entry in attempts} == pids


def test_a_refusal_is_the_first_thing_and_writes_nothing_at_all(tmp_path: Path) -> None:
    project = prd.project(tmp_path)
    before = everything(project.root)
    env = {"PRP_PIPELINE_RUNNING": str(os.getpid())}

    for words in (("doit", "prd"), ("doit", "nonsense"), ("doit", "prd", "x=y"), ("doflow", "run", "prd", "--bad"),
                  ("doflow", "run", "prd", "--project-dir=/nowhere")):  # fmt: skip
        done = project.program(*words, env=env)
        assert (done.returncode, done.stderr) == (1, f"ERROR: {MESSAGE.format(os.getpid())}\n"), words

    assert everything(project.root) == before


def test_as_json_the_refusal_is_one_object(tmp_path: Path) -> None:
    project = prd.project(tmp_path)

    done = project.doflow("run", "prd", "--json", env={"PRP_PIPELINE_RUNNING": str(os.getpid())})

    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(done.stderr)["message"] == MESSAGE.format(os.getpid())


def test_what_a_dead_run_left_in_a_shell_stops_no_one(tmp_path: Path) -> None:
    project = prd.project(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    done = project.doit("prd", "--next", env={"PRP_PIPELINE_RUNNING": str(gone.pid)})

    assert (done.returncode, project.calls()) == (0, ["backlog"])
    assert done.stderr == f"warning: PRP_PIPELINE_RUNNING names process {gone.pid}, which has ended; continuing\n"


def test_a_process_that_becomes_doflow_is_not_nested_in_itself(tmp_path: Path) -> None:
    project = prd.project(tmp_path)
    script = f"PRP_PIPELINE_RUNNING=$$ exec {PROGRAMS}/doit prd --next"

    done = subprocess.run(["sh", "-c", script], cwd=project.root, env=project.env, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def everything(root: Path) -> dict[str, bytes]:
    """Every file below a folder, `.git` too."""
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
