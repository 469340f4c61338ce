"""A person's own DOIT_CONFIG in dodo.py: it holds, wherever it stands, and the flows go on working."""

from __future__ import annotations

import json

import pytest
from tests.support.project import DODO, Project

MINE = 'def task_mine():\n    return {"actions": ["echo said by $0"], "verbosity": 0}\n'


def dodo(project: Project, place: str, config: str) -> None:
    own = f"DOIT_CONFIG = {config}\n"
    project.write("dodo.py", MINE + (own + DODO if place == "above" else DODO + own))
    project.commit("My own config")


@pytest.fixture(params=["above", "below"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.smoke("above")
def test_flows_work_beside_it_and_doits_memory_stays_ours(place: str, project: Project) -> None:
    dodo(project, place, '{"verbosity": 1, "default_tasks": ["mine"]}')

    done = project.doit("tiny", "--goal=x")

    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
    plain = project.doit()
    assert plain.returncode == 0 and "tiny" not in plain.stdout
    assert project.doit("forget", "tiny:plan").returncode == 0
    assert "forget" in project.doflow("why", "plan").stdout
    assert project.git("status", "--porcelain") == "", "no other memory of doit's"


@pytest.mark.smoke("below")
def test_its_reporter_and_its_number_of_workers_hold(place: str, project: Project) -> None:
    project.flow(
        "pair", "flow: pair\nsteps:\n  one: {prompt: A, makes: a.md}\n  two: {prompt: B, makes: b.md, after: []}\n"
    )
    project.agent("""
        (outside / step).touch()
        for _ in range(3000):
            if all((outside / name).exists() for name in ("one", "two")):
                break
            time.sleep(0.02)
        else:
            stop(1)
        usual()
    """)
    dodo(project, place, '{"reporter": "json", "num_process": 2}')

    done = project.doit("pair", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert [task["result"] for task in json.loads(done.stdout)["tasks"] if task["name"] != "pair"] == ["success"] * 2


def test_what_cannot_be_had_is_said(place: str, project: Project) -> None:
    dodo(project, place, '{"backend": "json", "dep_file": "memory.json", "par_type": "process"}')

    done = project.doit("tiny", "--goal=x", "--next")

    assert done.returncode == 0, done.stderr
    assert "DOIT_CONFIG in dodo.py: backend, dep_file, par_type: ignored" in done.stderr
    assert not (project.root / "memory.json").exists()


def test_one_that_is_none_is_told_by_doit(place: str, project: Project) -> None:
    dodo(project, place, '["verbosity"]')

    done = project.doit("tiny", "--goal=x")

    assert done.returncode != 0 and "DOIT_CONFIG  must be a dict" in done.stderr
    assert "not installed" not in done.stdout + done.stderr and project.calls() == []


def test_it_holds_too_when_a_file_beside_dodo_py_calls_us(project: Project) -> None:
    project.write("shared_tasks.py", "import doflow\nFLOWS = doflow.dodo()\n")
    text = 'from shared_tasks import FLOWS\nglobals().update(FLOWS)\nDOIT_CONFIG = {"verbosity": 1}\n'
    project.write("dodo.py", MINE + text)
    project.commit("A dodo.py in two files")

    done = project.doit("tiny", "--goal=x")

    assert (done.returncode, project.doit("mine").returncode) == (0, 0), done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
