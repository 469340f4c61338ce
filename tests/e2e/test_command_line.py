"""The command line itself: verbs, help, errors, exit codes; nothing that only looks writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.json_output import everything
from tests.support.project import Project


@pytest.mark.smoke
def test_without_words_it_lists_every_verb(project: Project):
    plain, asked = project.doflow(), project.doflow("--help")

    assert plain.stdout == asked.stdout
    assert (plain.returncode, asked.returncode) == (0, 0)
    for verb in ("init", "demo", "run", "status", "plan", "why", "approve", "logs", "show", "validate", "config"):
        assert f"\n  {verb} " in plain.stdout


def test_every_verb_has_help_with_examples(project: Project):
    from doflow.cli import main

    for verb in main.VERBS:
        told = project.doflow(verb, "--help")
        assert told.returncode == 0, verb
        assert f"usage: doflow {verb}" in told.stdout
        assert "examples:" in told.stdout


def test_the_version_is_told(project: Project):
    from doflow.util.version import VERSION

    assert project.doflow("--version").stdout == f"doflow {VERSION}\n"


def test_a_mistyped_verb_is_an_error_that_names_the_right_one(project: Project):
    told = project.doflow("staus")

    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "ERROR: unknown command: 'staus'\n  hint: did you mean: doflow status\n"


BAD = [("status", "--nonsense"), ("why",), ("logs", "--attempt", "x"), ("show", "--format", "png")]


@pytest.mark.smoke("words0")
@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_never_look_like_a_pause(project: Project, words: tuple[str, ...]):
    told = project.doflow(*words)

    assert (told.returncode, told.stdout) == (1, "")
    assert f"hint: doflow {words[0]} --help" in told.stderr


@pytest.mark.smoke
def test_with_json_an_error_is_one_object_on_stderr(project: Project):
    told = project.doflow("status", "77", "--json")

    assert (told.returncode, told.stdout) == (1, "")
    found = json.loads(told.stderr)
    assert found.pop("at")
    assert found == {
        "event": "error",
        "run": "",
        "message": "no run named 77 (runs: none yet)",
        "hint": "doflow status lists them",
    }


def test_a_reader_that_goes_away_is_no_news(done: Project):
    for _ in range(3):
        started = done.start("doflow", "show", "tiny", "--format", "svg")
        assert started.stdout is not None
        started.stdout.close()
        assert started.wait(60) in (0, 1)
        assert started.stderr is not None
        assert started.stderr.read() == ""


def test_looking_does_not_import_the_heavy_libraries(project: Project):
    heavy = "{'argparse', 'yaml', 'doit', 'git'}"
    code = f"import sys; from doflow.cli import main as cli; cli.main(['--help']); print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, env=project.env, check=True)

    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.smoke
def test_nothing_that_looks_writes_anything(done: Project):
    done.write("specs/001-log-in-by-a/spec.md", "# Spec\n\n## Requirements\n\nMine.\n")
    before = everything(done.root)

    for words in (
        *(("status",), ("status", "1"), ("plan",), ("plan", "tiny", "--goal=Another"), ("plan", "--prompt", "plan")),
        *(("why", "plan"), ("why", "implement"), ("config",), ("validate", "tiny")),
        *(("show", "tiny"), ("logs",), ("logs", "plan")),
    ):
        assert done.doflow(*words).returncode == 0, words
    assert everything(done.root) == before


def test_outside_a_project_it_says_how_to_make_one(project: Project, tmp_path: Path):
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()

    assert "doflow init" in project.doflow("status", cwd=nowhere).stdout
    assert "doflow init" in project.doflow("plan", cwd=nowhere).stderr


def test_a_refusal_before_there_is_a_run_asks_for_the_same_command(project: Project):
    (project.home / ".gitconfig").write_text("")

    told = project.doit("tiny", "--goal=x", env={"GIT_CONFIG_GLOBAL": os.devnull, "EMAIL": ""}).stdout
    assert "Git identity is not configured" in told
    assert "then the same command again" in told
    assert "then: doit tiny" not in told


def test_hostile_text_in_a_goal_cannot_reach_the_terminal(project: Project):
    assert project.doit("tiny", "--goal=red \x1b[31m and \u202e back").returncode == 0

    for words in (("status",), ("status", "1"), ("plan",)):
        told = project.doflow(*words).stdout
        assert "\x1b" not in told
        assert "\u202e" not in told
    assert "\\x1b[31m" in project.doflow("status").stdout
