"""A lock that cannot be read: every command says so in words, with what to type, and other runs go on."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from tests.support.project import Project

FLOW = """\
flow: pair
about: Two artifacts.
params: {goal: {about: What to build, required: true}}
steps:
  first:  {prompt: Begin., reads: [input.md], makes: first.md}
  second: {prompt: End., reads: [first.md], makes: second.md}
"""
GOAL = hashlib.sha256(b"One").hexdigest()
HEAD = f'doflow: 1\nrun: "001-one"\nflow: "pair"\ngoal: "{GOAL}"\nbranch: "001-one"\n'.encode()
DAMAGE = {
    "empty": b"",
    "garbage": b"{{{\n",
    "binary": bytes(range(256)),
    "a list": b"- a\n",
    "a word": b"lock\n",
    "flow is a list": b'doflow: 1\nrun: "001-one"\nflow: [1]\n',
    "steps: 5": HEAD + b"steps: 5\n",
    "a step is a list": HEAD + b'steps:\n  "first": [1]\n',
    "no key": HEAD + b'steps:\n  "first": {}\n',
    "a key is a number": HEAD + b'steps:\n  "first": {"key": 5}\n',
    "reads is a text": HEAD + b'steps:\n  "first": {"key": "5", "reads": "x"}\n',
    "artifacts": HEAD + b'artifacts:\n  "a": {"digest": "x", "odd": "y"}\n',
    "deep": b"[" * 100_000,
}
COMMANDS = {
    "doit": ("doit",),
    "doit pair": ("doit", "pair"),
    "doit pair --goal": ("doit", "pair", "--goal=One"),
    "doit pair --run": ("doit", "pair", "--run=1"),
    "doflow run": ("doflow", "run"),
    "doflow run --json": ("doflow", "run", "pair", "--json"),
    "plan": ("doflow", "plan"),
    "why": ("doflow", "why", "first"),
    "verify": ("doflow", "verify"),
    "approve": ("doflow", "approve"),
    "adopt": ("doflow", "adopt", "first"),
    "reset": ("doflow", "reset", "first"),
    "status": ("doflow", "status", "1"),
}
LOCK = "specs/001-one/doflow.lock"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("finished"))
    project.flow("pair", FLOW)
    project.commit()
    done = project.doit("pair", "--goal=One")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture
def pair(finished: Project, tmp_path: Path) -> Project:
    return finished.copied(tmp_path / "copy", "stamps")


def refused(project: Project, *command: str) -> None:
    done = project.program(*command)
    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said, project.calls()) == (1, False, []), (command, said)
    assert (LOCK in said, "git checkout -- " in said) == (True, True), (command, said)


@pytest.mark.smoke("doit pair-empty")
@pytest.mark.parametrize("damage", ["empty", "steps: 5"])
@pytest.mark.parametrize("command", COMMANDS, ids=COMMANDS.keys())
def test_every_command_says_so_and_what_to_type(pair, command, damage):
    (pair.root / LOCK).write_bytes(DAMAGE[damage])

    refused(pair, *COMMANDS[command])


@pytest.mark.parametrize("damage", DAMAGE, ids=DAMAGE.keys())
def test_whatever_it_holds(pair, damage):
    (pair.root / LOCK).write_bytes(DAMAGE[damage])

    refused(pair, "doit")
    refused(pair, "doflow", "verify")
    listed = pair.doit("list")
    assert (listed.returncode, "pair " in listed.stdout) == (0, True), listed.stderr
    told = 0 if DAMAGE[damage].startswith(HEAD) else 1  # the list of flows looks no further than its first lines
    assert (listed.stderr.count(LOCK + ": "), listed.stderr.count("hint:")) == (told, told), listed.stderr


@pytest.mark.parametrize("damage", ["empty", "steps: 5"])
def test_without_the_state_of_this_machine_nothing_else_is_said(pair, damage):
    shutil.rmtree(pair.root / ".doflow")
    (pair.root / LOCK).write_bytes(DAMAGE[damage])

    for command in COMMANDS.values():
        refused(pair, *command)


@pytest.mark.parametrize("damage", ["empty", "steps: 5"])
def test_another_run_is_listed_and_goes_on(pair, damage):
    assert pair.doit("pair", "--goal=Two", "--next").returncode == 0
    pair.git("merge", "-q", "--no-edit", "001-one")
    pair.forget_calls()
    (pair.root / LOCK).write_bytes(DAMAGE[damage])

    status = pair.doflow("status", "--json")
    rows = {row["run"]: row for row in json.loads(status.stdout)["runs"]}
    done = pair.doit()

    assert set(rows) == {"001-one", "002-two"}
    if damage == "empty":
        assert (status.returncode, rows["001-one"]["status"], LOCK in rows["001-one"]["waits"]) == (1, "failed", True)
        assert "git checkout -- " in rows["001-one"]["next"]
    assert (rows["002-two"]["completed"], rows["002-two"]["flow"]) == (1, "pair")
    assert (done.returncode, pair.calls()) == (0, ["second"]), done.stdout + done.stderr
    verified = pair.doflow("verify")
    assert (verified.returncode, LOCK in verified.stdout, "in 2 runs" in verified.stdout) == (1, True, True)
    cost = pair.doflow("cost", "--all")
    assert (cost.returncode, "002-two" in cost.stdout) == (0, True), cost.stderr


def test_it_may_be_the_one_that_is_meant_so_no_other_goal_begins_a_run_beside_it(pair):
    (pair.root / LOCK).write_bytes(b"")

    refused(pair, "doit", "pair", "--goal=Another")
    new = pair.doit("pair", "--goal=Another", "--new")

    assert (new.returncode, LOCK in new.stderr, pair.runs()) == (0, True, ["001-one", "002-another"]), new.stderr


@pytest.mark.smoke
def test_what_the_hint_says_brings_it_back(pair):
    (pair.root / LOCK).write_bytes(b"")
    said = pair.doit().stderr
    words = said.partition("git checkout -- ")[2].partition("   ")[0]

    pair.git("checkout", "--", words)
    done = pair.doit()

    assert (done.returncode, pair.calls()) == (0, []), done.stdout + done.stderr
