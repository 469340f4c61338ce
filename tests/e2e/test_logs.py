"""`doflow logs`: each call's own log, followed, listed and harmless on a terminal."""

from __future__ import annotations

import json
import signal

import pytest
from tests.support.json_output import looked
from tests.support.project import Project, eventually

LOGGED = """
    flow: work
    defaults: {retry: {attempts: 1, backoff: 0s}}
    steps:
      a: {prompt: Write., makes: a.md}
"""


@pytest.mark.smoke
def test_logs_lists_and_prints_what_was_said(done: Project):
    listed = looked(done, "logs")["logs"]
    assert {row["step"] for row in listed} == {"specify", "plan", "tasks", "implement:1", "implement:2"}

    assert done.doflow("logs", "plan").stdout == "plan is done\n"
    assert done.doflow("logs", "tiny:implement:1").stdout == "implement:1 is done\n"
    assert done.doflow("logs", "implement").stdout == "implement:2 is done\n"


def test_logs_of_one_attempt_and_of_the_complaints(project: Project):
    project.agent('print("bad" if nth == 0 else "good"); print("oh", file=sys.stderr)\nif nth == 0: stop(1)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode in (0, 1)

    assert project.doflow("logs", "specify", "--attempt", "1").stdout.startswith("bad\n")
    assert project.doflow("logs", "specify", "--err").stdout == "oh\n"
    told = project.doflow("logs", "specify", "--attempt", "9")
    assert (told.returncode, "has no log of specify, attempt 9" in told.stderr) == (1, True)


def test_the_logs_of_an_earlier_command_stay_and_attempts_are_numbered_on(project: Project):
    project.flow("work", LOGGED)
    project.commit("A flow")
    project.agent("say(f'call {len(before)}'); stop(1)")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1

    said = [project.doflow("logs", "a", "--attempt", str(number)).stdout for number in (1, 2, 3, 4)]
    missing = project.doflow("logs", "a", "--attempt", "5")

    assert said == [f"call {number}\n" for number in range(4)]
    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert [project.read(path) for path in told] == said, "the ledger names each call's own log"
    assert (missing.returncode, "its attempts: 1, 2, 3, 4" in missing.stderr) == (1, True), missing.stderr
    assert project.doflow("logs", "a").stdout == "call 3\n"


def test_each_repair_has_a_log_of_its_own(project: Project):
    project.flow("work", LOGGED.replace("makes: a.md", "makes: a.md, check: {headings: [Good]}, repair: 2"))
    project.commit("A flow")
    project.agent("make('# Bad\\n'); say(f'call {len(before)}')")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1

    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert len(told) == len(project.calls()) == len(set(told))
    assert [project.read(path) for path in told] == [f"call {number}\n" for number in range(len(told))]


def test_the_logs_of_commands_and_reviewers_stay_too(project: Project):
    project.flow(
        "work",
        """
        flow: work
        defaults: {retry: {attempts: 0}}
        steps:
          t: {kind: shell, run: "echo hello; test -e go"}
          look: {kind: review, reads: [input.md], personas: [ann], rounds: 1}
        """,
    )
    project.commit("A flow")
    project.agent("say('no verdict')")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1
    project.write("go", "")
    project.commit("Go")
    for _ in range(2):
        assert project.doit("work").returncode == 1

    names = {path.name for path in (project.root / ".doflow/runs/001-x/logs").iterdir()}
    assert {"t.1.log", "t.2.log", "t.3.log"} <= names
    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert len(told) == len(project.calls()) == len(set(told)) >= 2, told


def test_the_log_of_a_fixed_command_is_its_own_output(project: Project):
    project.flow("work", 'flow: work\nsteps:\n  t: {kind: shell, run: "echo hello; test -e go", repair: 2}\n')
    project.commit("A flow")
    project.agent("say('mended'); put('go', '')")
    assert project.doit("work", "--goal=x").returncode == 0

    first, last = project.doflow("logs", "t", "--attempt", "1"), project.doflow("logs", "t")
    fixed = project.doflow("logs", "t", "--role", "repair")

    assert (first.stdout, last.stdout, fixed.stdout) == ("hello\n", "hello\n", "mended\n")


def test_no_one_is_sent_to_the_log_of_a_command_that_said_nothing(project: Project):
    project.flow("work", "flow: work\nsteps:\n  t: {kind: shell, run: [test, -e, go], repair: 1}\n")
    project.commit("A flow")
    project.agent("say('I looked')")

    done = project.doit("work", "--goal=x")
    silent = project.doflow("logs", "t")

    assert done.returncode == 1 and "doflow logs" not in done.stdout, done.stdout
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == "t printed nothing\n  output of its agent: doflow logs t --role repair\n"


def test_an_empty_log_is_told_in_words(project: Project):
    project.agent('print("oh", file=sys.stderr)\nmake("# Spec\\n\\n## Requirements\\n\\nAll.\\n")\nstop(0)')
    project.doit("tiny", "--goal=x", "--next")

    silent = project.doflow("logs", "specify")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == (
        "specify printed nothing on standard output (attempt 1)\n  its standard error: doflow logs specify --attempt 1 --err\n"
    )
    project.agent("usual()")
    project.doit("tiny", "--next")
    assert project.doflow("logs", "plan", "--err").stderr.startswith(
        "plan printed nothing on standard error (attempt 1)\n"
    )


def test_logs_are_harmless(project: Project):
    project.agent('say("\\x1b]0;owned\\x07 \\u202e evil\\rgone")\nusual()')
    assert project.doit("tiny", "--goal=x").returncode == 0

    told = project.doflow("logs", "specify").stdout
    assert told.startswith("\\x1b]0;owned\\x07 \\u202e evil\\x0dgone\n")


def test_a_log_as_one_json_document(project: Project):
    project.agent('say("\\x1b]0;owned\\x07 \\u202e")\nusual()')
    assert project.doit("tiny", "--goal=x").returncode == 0

    told = looked(project, "logs", "specify")

    assert told["text"] == "\x1b]0;owned\x07 \u202e\nspecify is done\n"
    assert (told["run"], told["step"], told["attempt"], told["err"]) == ("001-x", "specify", 1, False)
    assert looked(project, "logs", "specify", "--err")["text"] == ""
    assert "one object per line" in project.doflow("logs", "--help").stdout


def test_a_followed_log_is_one_json_object_per_line(project: Project):
    project.agent('say("first")\nif step == "specify": time.sleep(1)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls()[:1] == ["specify"])

    lines = project.doflow("logs", "specify", "--follow", "--json").stdout.splitlines()

    assert "".join(json.loads(line)["text"] for line in lines) == "first\nspecify is done\n"
    assert started.wait(60) == 0


def test_a_log_that_is_a_link_is_not_followed(done: Project):
    secret = done.home / "secret"
    secret.write_text("secret\n")
    log = done.root / ".doflow/runs/001-log-in-by-a/logs/plan.1.log"
    log.unlink()
    log.symlink_to(secret)

    told = done.doflow("logs", "plan")
    assert told.returncode == 1
    assert "secret\n" not in told.stdout


def test_logs_follow_a_step_until_the_run_ends(project: Project):
    project.agent("""
        say("first")
        while not (outside / "go").exists():
            time.sleep(0.02)
        say("last")
        usual()
    """)
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls() == ["specify"])
    following = project.start("doflow", "logs", "specify", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    assert started.poll() is None
    (project.outside / "go").touch()

    assert following.communicate(timeout=60)[0] == "last\nspecify is done\n"
    assert following.returncode == 0
    assert started.wait(60) == 0


def test_an_interrupted_follow_ends_with_130(project: Project):
    project.agent('say("first")\ntime.sleep(60)')
    started = project.start("doit", "tiny", "--goal=x")
    try:
        assert eventually(lambda: project.calls() == ["specify"])
        following = project.start("doflow", "logs", "specify", "--follow")
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
        assert following.stderr is not None
        assert following.stderr.read() == ""
    finally:
        started.kill()
        started.communicate(timeout=60)
