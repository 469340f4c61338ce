"""Calls are recorded with `--record` and played back by the agent `replay`: the same words, the same files, no model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.e2e.test_cost import TELLS
from tests.support.project import Project

FLOW = """
    flow: work
    params: {goal: {about: What., required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      tasks: {prompt: "List the tasks of {goal}.", makes: tasks.md, check: {tasks: true}}
      check: {kind: review, prompt: Look., reads: [tasks.md], personas: [ann], rounds: 1}
      implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""
SECRET = "tok-abcdefgh-12345678"


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    project.agent(TELLS + """
uses(100, 10, 0, 0.5, "m1")
if persona: say("ISSUE: L | So so | " + str(run_dir.relative_to(root)) + "/tasks.md\\nVERDICT: GO")
else: usual()
if phase == "2": os.chmod(root / "src/phase_2.py", 0o755); os.symlink("phase_1.py", root / "src/link.py")
""")  # fmt: skip
    return project


def sessions(work: Project, run: str = "001-x") -> list[Path]:
    return sorted((work.root / ".doflow/runs" / run / "sessions").iterdir())


def replaying(work: Project, more: str = "") -> None:
    work.write("doflow.yaml", f"agents: {{default: {{use: replay{more}}}}}\n")
    work.commit("Replay")
    work.forget_calls()


def record(work: Project, *words: str, code: int = 0, **env: str) -> None:
    done = work.doit("work", "--goal=x", "--record", *words, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    work.git("switch", "-q", "main")


@pytest.mark.smoke
def test_a_recorded_run_is_played_back_in_another_run_without_any_agent(work):
    record(work)
    names = [folder.name for folder in sessions(work)]
    assert names == ["001-tasks", "002-check.persona.ann", "003-implement.1", "004-implement.2"]
    first = sessions(work)[0]
    about = json.loads((first / "call.json").read_text())
    assert (about["status"], about["model"], about["usage"]["usd"], about["code"]) == ("done", "m1", 0.5, 0)
    assert (first / "prompt.md").read_text() == work.prompts()[0]
    assert (first / "stream.log").read_text() == (first / "answer.md").read_text() == "tasks is done\n"
    assert "+## Phase 1: Ground" in (first / "diff.patch").read_text()
    replaying(work)

    done = work.doit("work", "--goal=x", "--new")

    assert (done.returncode, work.calls()) == (0, []), done.stdout + done.stderr
    assert work.read("src/phase_2.py") == "PHASE = '2'\n" and os.access(work.root / "src/phase_2.py", os.X_OK)
    assert os.readlink(work.root / "src/link.py") == "phase_1.py"
    assert "specs/002-x/tasks.md" in work.read("specs/002-x/review-check.yaml"), "the run's folder is the new one"
    assert "free" in work.doflow("cost", "2").stdout


def test_recordings_can_be_kept_in_the_project_and_played_in_a_clone(work, tmp_path):
    record(work)
    shutil.copytree(work.root / ".doflow/runs/001-x/sessions", work.root / "recorded")
    shutil.rmtree(work.root / ".doflow")
    replaying(work, ", sessions: recorded")

    done = work.doit("work", "--goal=x", "--run=009-other")

    assert (done.returncode, work.calls()) == (0, []), done.stdout + done.stderr
    assert work.state()["implement_phases_completed"] == ["phase_1", "phase_2"]


def test_where_no_recording_is_the_same_it_fails_and_names_the_nearest_difference(work):
    record(work)
    replaying(work)
    work.flow("work", FLOW.replace("List the tasks", "List all tasks"))
    work.commit("Another prompt")

    done = work.doit("work", "--goal=x", "--new")

    assert (done.returncode, work.calls()) == (1, [])
    assert (
        "no recording of tasks matches: its prompt differs from " in done.stdout
        and "sessions/001-tasks at line 1" in done.stdout
    )
    assert "recorded 'List the tasks of x.', now 'List all tasks of x.'" in done.stdout
    assert "--record" in done.stdout


def test_a_step_that_was_never_recorded_is_told_with_those_that_were(work):
    record(work)
    replaying(work)
    work.flow("work", FLOW.replace("tasks: {prompt", "first: {prompt: A., makes: a.md}\n      tasks: {prompt"))
    work.commit("A new step")

    done = work.doit("work", "--goal=x", "--new")

    assert done.returncode == 1
    assert "no recording of first (recorded: tasks, check ann, implement 1, implement 2)" in done.stdout


def test_with_nothing_recorded_it_says_how_to_record(work):
    replaying(work)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 1 and "no recordings in " in done.stdout and "--record" in done.stdout


def test_a_failure_is_played_as_a_failure_and_the_next_attempt_as_it_went(work):
    work.flow("work", FLOW.replace("attempts: 0", "attempts: 1, backoff: 0s"))
    work.commit("Once more")
    work.agent('if step == "tasks" and not nth: stop(7)\nif persona: say("VERDICT: GO")\nelse: usual()')
    record(work)
    replaying(work)

    done = work.doit("work", "--goal=x", "--new")

    assert done.returncode == 0, done.stdout
    assert "exit code 7" in done.stdout and "work:tasks  (attempt 2)" in done.stdout


def test_secrets_are_not_kept_and_do_not_keep_a_recording_from_fitting(work):
    work.settings("", agent="env: [MY_TOKEN]")
    flow = FLOW.replace("List the tasks of {goal}.", f"List the tasks of {{goal}} with {SECRET}.")
    work.flow("work", flow)
    work.commit("A secret in a prompt")
    work.agent("""
if persona: say("VERDICT: GO")
else: usual()
if phase: put("src/config.py", "KEY = '" + known["MY_TOKEN"] + "'")
say("Bearer abcdefghijklmnop and ghp_" + "a" * 36 + " and " + known["MY_TOKEN"])
if persona: say("VERDICT: GO")
""")  # fmt: skip
    record(work, MY_TOKEN=SECRET)

    kept = "".join(path.read_text() for folder in sessions(work) for path in folder.iterdir())

    assert SECRET not in kept and "ghp_a" not in kept and "abcdefghijklmnop" not in kept
    assert "[redacted: MY_TOKEN]" in kept and "[redacted: github token]" in kept and "Bearer [redacted: bearer]" in kept
    replaying(work)
    work.flow("work", flow.replace(SECRET, "tok-another-secret-of-mine"))
    work.commit("Another secret")
    done = work.doit("work", "--goal=x", "--new", env={"MY_TOKEN": "tok-another-secret-of-mine"})
    assert done.returncode == 0, done.stdout


def test_without_record_nothing_is_kept(work):
    assert work.doit("work", "--goal=x").returncode == 0
    assert not (work.root / ".doflow/runs/001-x/sessions").exists()
