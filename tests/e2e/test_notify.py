"""Is a person who is away told how the run ended, once, and does it never change how it ended?"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest
from tests.support.project import Project, eventually

from doflow.util.process import notify

ONE = """
flow: one
params: {goal: {about: What, required: true}}
steps:
  write: {prompt: Write., makes: text.md, retry: {attempts: 0}}
"""
GATED = ONE.replace("retry:", "gate: Is it good?, retry:")
TELLER = """
import json, os, sys
said = json.load(sys.stdin)
env = {name: os.environ["DOFLOW_" + name.upper()] for name in said}
with open(sys.argv[1], "a") as log:
    got = {"stdin": said, "same": env == said, "cwd": os.getcwd(), "key": os.environ.get("MY_KEY", "")}
    log.write(json.dumps(got) + "\\n")
"""


@pytest.fixture
def told(project: Project):
    """The project tells a program; gives what the program got so far."""
    project.flow("one", ONE)
    (project.outside / "teller.py").write_text(TELLER)
    log = project.outside / "told.jsonl"
    command(project, sys.executable, str(project.outside / "teller.py"), str(log))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def command(project: Project, *argv: str) -> None:
    project.settings(f"notify: {{command: {json.dumps(argv)}}}\n")
    project.commit()


@pytest.mark.smoke
def test_the_end_of_a_run_is_told_with_the_same_words_on_both_ways(project, told):
    done = project.doit("one", "--goal=x", env={"MY_KEY": "of the person"})

    said = {"event": "done", "run": "001-x", "flow": "one", "message": "every step is done", "hint": ""}
    assert (done.returncode, done.stderr) == (0, "")
    assert told() == [{"stdin": said, "same": True, "cwd": str(project.root), "key": "of the person"}]


def test_a_run_with_nothing_to_do_tells_no_one(project, told):
    project.doit("one", "--goal=x")

    project.doit("one", "--goal=x")

    assert len(told()) == 1


def test_a_gate_is_told_with_the_command_that_passes_it(project, told):
    project.flow("one", GATED)
    project.commit()

    done = project.doit("one", "--goal=x")

    (note,) = told()
    assert done.returncode == 2
    assert note["stdin"] == {
        "event": "paused",
        "run": "001-x",
        "flow": "one",
        "message": "Is it good? (specs/001-x/text.md)",
        "hint": "doflow approve write   or   doflow reject write --note '…'   then: doit one",
    }


def test_a_rate_limit_is_told(project, told):
    project.agent("stop(75)")

    done = project.doit("one", "--goal=x")

    (note,) = told()
    assert (done.returncode, note["stdin"]["event"]) == (3, "rate_limited")
    assert note["stdin"]["message"] == "default is rate limited"
    assert note["stdin"]["hint"].startswith("at 2")
    assert note["stdin"]["hint"].endswith("or later: doit one")


def test_a_failure_is_told(project, told):
    project.agent('say("no"); stop(3)')

    done = project.doit("one", "--goal=x")

    (note,) = told()
    assert (done.returncode, note["stdin"]["event"]) == (1, "failed")
    assert "exit code 3" in note["stdin"]["message"]


def test_one_step_of_many_is_no_news(project, told):
    project.flow("one", ONE + "  again: {prompt: Again., makes: again.md}\n")
    project.commit()

    done = project.doit("one", "--goal=x", "--next")

    assert (done.returncode, told()) == (0, [])


def test_who_interrupts_needs_not_be_told(project, told):
    project.agent("time.sleep(60)")
    started = project.start("doit", "one", "--goal=x")
    assert eventually(project.calls)

    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)

    assert (started.returncode, told()) == (130, [])


@pytest.mark.smoke("argv1-failed with exit code 7: my pager is off")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("/no/such/program",), "was not found"),
        (("sh", "-c", "echo my pager is off; exit 7"), "failed with exit code 7: my pager is off"),
    ],
)
def test_a_command_that_fails_is_a_warning_and_no_more(project, told, argv, words):
    command(project, *argv)

    done = project.doit("one", "--goal=x")

    assert done.returncode == 0
    assert "warning: the notify command" in done.stderr
    assert words in done.stderr
    assert "`notify.command` in doflow.yaml" in done.stderr
    assert project.state()["status"] == "completed"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(project, tmp_path):
    script = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/pid; sleep 300"
    begun = time.monotonic()

    trouble = notify.run_notify_command(
        ("sh", "-c", script), "done", "001-x", "one", "", "", project.env, root=project.root, limit=3
    )

    assert time.monotonic() - begun < 60
    assert "its time limit" in trouble
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_lock_is_free_and_the_state_is_whole_when_the_command_runs(project, told):
    seen = project.outside / "seen.json"
    look = f"flock -n {project.root} cp {project.root}/.doflow/runs/001-x/pipeline-state.json {seen}"
    command(project, "sh", "-c", look)

    done = project.doit("one", "--goal=x")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(seen.read_text())["status"] == "completed"


def test_json_on_stdout_stays_json_while_the_command_prints(project, told):
    command(project, "sh", "-c", "echo noise; echo noise >&2")

    done = project.doflow("run", "one", "--goal=x", "--json")

    assert done.returncode == 0
    assert all(json.loads(line)["event"] for line in done.stdout.splitlines())
    assert "noise" not in done.stderr


@pytest.mark.parametrize(
    ("events", "code", "event"),
    [
        (("gate", "error"), 1, "failed"),
        (("error", "rate_limited"), 3, "rate_limited"),
        (("gate",), 1, "paused"),
        ((), 1, "failed"),
        ((), 0, ""),
        (("heartbeat", "pipeline_complete"), 0, "done"),
    ],
)
def test_the_news_is_what_the_exit_code_says_as_far_as_this_run_had_it(events, code, event):
    assert notify.news({name: {"message": name} for name in events}, code)[0] == event
