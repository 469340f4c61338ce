"""A used-up quota: the run waits and goes on by itself, or someone else does it, or it says when to come back."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from pathlib import Path

import pytest
from tests.support.project import Project, eventually
from tests.support.terminal import Terminal

SAMPLES = Path(__file__).parent.parent / "contract" / "samples"
FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: Write., makes: one.md}
      two: {prompt: Write., makes: two.md}
"""
LIMITED = """
import datetime, sys

def limited(seconds):
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    say("RESUME-AT: " + at.isoformat())
    stop(75)

"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def state_of(work: Project) -> str:
    return work.state().get("status", "")


@pytest.mark.smoke
def test_a_run_that_may_wait_waits_visibly_and_goes_on_by_itself(work):
    work.settings("rate_limit: {wait: 1m}\n")
    work.agent(LIMITED + 'if step == "two" and nth < 1:\n    make("half of it")\n    limited(6)\nusual()')
    begun = time.monotonic()

    started = work.start("doit", "work", "--goal=x")
    assert eventually(lambda: state_of(work) == "rate-limited")
    resumes = work.state()["resumeAt"]
    out, _ = started.communicate(timeout=60)

    assert (started.returncode, work.calls(), state_of(work)) == (0, ["one", "two", "two"], "completed"), out
    assert time.monotonic() - begun > 2.0
    (waiting,) = [entry for entry in work.events() if entry["event"] == "waiting"]
    assert waiting["resumeAt"] == resumes and waiting["step"] == "two"
    (line,) = [line for line in out.splitlines() if line.startswith("~~ ")]
    assert "work:two: default is rate limited; waiting " in line and f"until {resumes}" in line and "^C stops" in line
    assert "half of it" not in (work.run_dir() / "two.md").read_text()
    assert work.state()["resumeAt"] == ""


def test_interrupted_while_it_waits_it_ends_with_130_and_goes_on_later(work):
    work.settings("rate_limit: {wait: 1h}\n")
    work.agent(LIMITED + 'if step == "two" and nth < 1: limited(600)\nusual()')
    started = work.start("doit", "work", "--goal=x")
    assert eventually(lambda: state_of(work) == "rate-limited")

    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)

    assert (started.returncode, state_of(work), work.state()["pauseReason"]) == (130, "paused", "interrupted")
    assert work.doit("work").returncode == 0
    assert work.calls() == ["one", "two", "two"]


def test_killed_while_it_waits_it_goes_on_where_it_was(work):
    work.settings("rate_limit: {wait: 1h}\n")
    work.agent(LIMITED + 'if step == "two" and nth < 1: limited(600)\nusual()')
    started = work.start("doit", "work", "--goal=x")
    assert eventually(lambda: state_of(work) == "rate-limited")

    started.kill()
    started.communicate(timeout=60)

    assert "rate-limited" in work.doflow("status").stdout
    assert work.doit("work").returncode == 0
    assert (work.calls(), state_of(work)) == (["one", "two", "two"], "completed")


@pytest.mark.smoke("false-")
@pytest.mark.parametrize(("wait", "words"), [("false", ""), ("1h", "exceeds rate_limit.wait (1h)")])
def test_a_wait_that_is_not_allowed_ends_the_run_with_the_time_to_come_back(work, wait, words):
    work.settings(f"rate_limit: {{wait: {wait}}}\n")
    work.agent(LIMITED + 'if step == "two": limited(7200)\nusual()')

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls(), state_of(work)) == (3, ["one", "two"], "rate-limited")
    assert words in done.stdout
    assert f"at {work.state()['resumeAt']} or later: doit work" in done.stdout


def test_waits_that_follow_each_other_are_longest_together(work):
    """The first waits are 1 s and 2 s long, the third would be 4 s: allowed by itself, and too long with the others."""
    work.settings("rate_limit: {wait: 6}\n")
    work.agent(LIMITED + "limited(1)")

    done = work.doit("work", "--goal=x")

    waits = [entry["seconds"] for entry in work.events() if entry["event"] == "waiting"]
    assert (done.returncode, len(work.calls()), len(waits)) == (3, 3, 2), done.stdout
    assert sum(waits) < 6 < sum(waits) + 4.0
    assert "4s more exceeds rate_limit.wait (6s)" in done.stdout


SECOND = """
import sys
who = sys.argv[1] if len(sys.argv) > 1 else "first"
with open(outside / "who.log", "a") as log: log.write(f"{line} {who}\\n")
"""


def two_agents(work: Project, fallback: str = "fallback: second") -> None:
    argv = json.dumps(["python3", *work.agent_program()])
    work.settings("", agent=fallback)
    second = f"  second: {{use: command, argv: {argv}, args: [second], model: m2}}\n"
    work.write("doflow.yaml", work.read("doflow.yaml") + second)


def who(work: Project) -> list[str]:
    return (work.outside / "who.log").read_text().splitlines()


@pytest.mark.smoke
def test_a_fallback_does_what_a_limited_agent_cannot_and_goes_on_with_it(work):
    two_agents(work)
    work.agent(SECOND + LIMITED + 'if who == "first":\n    put("half.txt", "x")\n    limited(3600)\nusual()')

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert who(work) == ["one first", "one second", "two second"], "whoever is limited is not called again"
    assert "default is rate limited until " in done.stdout and "second does one instead" in done.stdout
    assert '"agent":"second m2"' in (work.run_dir() / "doflow.lock").read_text().replace('": "', '":"')
    assert not (work.root / "half.txt").exists()
    assert work.doit("work").returncode == 0
    assert len(who(work)) == 3, "who did it does not make it stale"


def test_a_step_names_its_own_fallback_and_all_limited_is_a_rate_limit(work):
    two_agents(work, "")
    work.flow("work", FLOW.replace("one.md}", "one.md, fallback: second}"))
    work.agent(SECOND + LIMITED + 'limited(7200 if who == "first" else 3600)')

    done = work.doit("work", "--goal=x")

    assert (done.returncode, who(work)) == (3, ["one first", "one second"]), done.stdout
    work.flow("work", FLOW.replace("one.md}", "one.md, fallback: nobody}"))
    bad = work.doit("work", "--goal=y")
    assert bad.returncode == 1 and "names the agent 'nobody'" in bad.stdout


def test_an_agent_of_the_command_line_is_not_replaced_by_the_fallback_of_a_step(work):
    two_agents(work, "")
    work.flow("work", FLOW.replace("one.md}", "one.md, fallback: second}"))
    work.agent(SECOND + LIMITED + 'if who == "first": limited(3600)\nusual()')

    done = work.doit("work", "--goal=x", "--agent=default")

    assert (done.returncode, who(work)) == (3, ["one first"]), done.stdout
    assert work.doit("work", "--agent=second").returncode == 0
    assert who(work)[1:] == ["one second", "two second"]


def test_reviewers_wait_too_and_only_who_has_not_answered_is_asked(work):
    work.settings("rate_limit: {wait: 1m}\n")
    work.flow("work", FLOW + "      check: {kind: review, reads: [one.md], personas: [ann, bob], rounds: 1}\n")
    work.agent(LIMITED + """
if persona == "bob" and nth < 1: limited(2)
if persona: say("VERDICT: GO")
else: usual()
""")  # fmt: skip

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert sorted(work.calls()[2:]) == ["check persona ann", "check persona bob", "check persona bob"]
    assert "~~ work:check: default is rate limited; waiting" in done.stdout


def test_a_limit_while_it_is_fixed_does_not_lose_what_was_made(work):
    work.settings("rate_limit: {wait: 1m}\n")
    work.flow("work", FLOW.replace("one.md}", "one.md, check: {headings: [Wanted]}, repair: 2}"))
    work.agent(LIMITED + """
if role == "repair" and nth < 1: limited(2)
if role == "repair": make(makes[0].read_text() + "\\n## Wanted\\n\\nx\\n")
else: usual()
""")  # fmt: skip

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (0, ["one", "one repair", "one repair", "two"]), done.stdout
    assert "What one.md says." in (work.run_dir() / "one.md").read_text()


def test_failures_that_pass_are_tried_again_after_about_the_time_that_is_said_and_the_same_one_only_three_times(work):
    work.flow("work", FLOW.replace("attempts: 0", "attempts: 9, backoff: 1s"))
    work.settings("retry: {enabled: true}\n")
    work.agent("stop(1)")

    done = work.doit("work", "--goal=x")

    waits = [entry["wait"] for entry in work.events() if entry["event"] == "retry"]
    assert (done.returncode, work.calls()) == (1, ["one"] * 3)
    assert "(failed 3 times with the same error; giving up)" in done.stdout
    assert [0.75 <= waits[0] <= 1.25, 1.5 <= waits[1] <= 2.5] == [True, True]


def claude(work: Project, sample: str) -> None:
    """Claude Code as it was recorded, with one line in a log for each call."""
    program = work.outside / "claude"
    log = shlex.quote(str(work.outside / "calls.log"))
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho call >> {log}\ncat {SAMPLES / sample}\nexit 1\n")
    program.chmod(0o755)
    work.write("doflow.yaml", f"agents: {{default: {{use: claude, executable: {program}}}}}\n")


@pytest.mark.smoke("claude-auth.jsonl-1-log in")
@pytest.mark.parametrize(
    ("sample", "calls", "words"),
    [("claude-auth.jsonl", 1, "log in"), ("claude-overloaded.jsonl", 3, "failed 3 times with the same error")],
)
def test_a_wrong_key_is_never_tried_again_an_overloaded_server_is(work, sample, calls, words):
    claude(work, sample)
    work.flow("work", FLOW.replace("attempts: 0", "attempts: 4, backoff: 0s"))

    done = work.doit("work", "--goal=x")

    assert (done.returncode, len(work.calls())) == (1, calls), done.stdout
    assert words in done.stdout


def test_the_live_view_counts_down(work, tmp_path):
    work.settings("rate_limit: {wait: 1m}\n")
    work.agent(LIMITED + 'if step == "two" and nth < 1: limited(9)\nusual()')

    def counted(seen: str) -> bool:
        found = re.search(r"continues in (\d+)s", seen)
        if found and int(found[1]) not in told:
            told.append(int(found[1]))
        return len(told) > 1

    told: list[int] = []
    with Terminal(work, "doit", "work", "--goal=x") as screen:
        screen.until(counted)
        assert screen.wait() == 0

    assert told == sorted(told, reverse=True)


def test_an_agent_that_waits_for_a_limit_is_told_of_while_it_waits(work):
    work.settings("timeouts: {idle: 5m}\n")
    work.agent("""
        import sys
        if step == "one":
            for text in ("starting", "request failed with status 429: rate limit reached, retrying in 7200s", "still waiting"):
                print(text, file=sys.stderr, flush=True)
                time.sleep(1.5)
        usual()
        """)

    done = work.doit("work", "--goal=x")

    told = [entry["message"] for entry in work.events() if entry["event"] == "warning"]
    assert (done.returncode, len(told)) == (0, 1), done.stdout
    assert "the agent of one reports a rate limit and may wait until it ends; after 5m without output" in told[0]
    assert told[0].endswith("retrying in 7200s") and told[0] in done.stdout
