"""Exit codes through every door, and the status on disk that agrees with each of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.project import Project, eventually

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: Write one., makes: one.md, after: []}
      two: {prompt: Write two., makes: two.md, after: []}
      three: {prompt: Write three., makes: three.md, after: [one, two], clarify: true}
"""

#: two steps side by side: `both()` returns when both are at work, `after(NAME)` when doflow has told how that one ended
TOGETHER = """
def until(found):
    for _ in range(3000):
        if found():
            return
        time.sleep(0.02)
    stop(99)

def both():
    (outside / step).touch()
    until(lambda: all((outside / name).exists() for name in ("one", "two")))

def after(name):
    ledger = root / ".doflow" / "runs" / run_dir.name / "events.jsonl"
    ends = ("rate_limited", "error", "clarification")
    told = lambda line: f'"step":"{name}"' in line and any(f'"event":"{end}"' in line for end in ends)
    until(lambda: any(map(told, ledger.read_text().splitlines())))

"""

DOORS = {
    "doit": ("doit", "work"),
    "doit -n 2": ("doit", "-n", "2", "work"),
    "doit -r json": ("doit", "-r", "json", "work"),
    "doflow run": ("doflow", "run", "work"),
    "doflow run --json": ("doflow", "run", "work", "--json"),
}

ENDS = {
    "done": ("usual()", 0, "completed"),
    "failed": ("usual() if step != 'two' else stop(7)", 1, "failed"),
    "paused": ("usual() if step != 'three' else make('[NEEDS CLARIFICATION: which?]')", 2, "awaiting-approval"),
    "rate limited": ("usual() if step != 'two' else stop(75)", 3, "rate-limited"),
}


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


@pytest.mark.smoke("doit-failed", "doit-paused", "doit-rate limited")
@pytest.mark.parametrize("end", ENDS, ids=ENDS.keys())
@pytest.mark.parametrize("door", DOORS, ids=DOORS.keys())
def test_code_and_status_agree(work, door, end):
    script, code, status = ENDS[end]
    work.agent(script)

    done = work.program(*DOORS[door])

    assert (done.returncode, work.state()["status"]) == (code, status), done.stdout + done.stderr
    again = work.program(*DOORS[door])
    assert (again.returncode, work.state()["status"]) == (code, status), again.stdout + again.stderr


@pytest.mark.smoke("doit")
@pytest.mark.parametrize("door", DOORS, ids=DOORS.keys())
def test_an_interrupt_is_130_and_paused(work, door):
    work.agent("time.sleep(60)")

    running = work.start(*DOORS[door])
    assert eventually(work.calls)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)

    assert running.returncode == 130
    assert (work.state()["status"], work.state()["pauseReason"]) == ("paused", "interrupted")
    work.agent("usual()")
    assert work.program(*DOORS[door]).returncode == 0
    assert work.state()["status"] == "completed"


def test_a_terminate_signal_is_an_interrupt_too(work):
    work.agent("time.sleep(60)")

    running = work.start("doit", "work")
    assert eventually(work.calls)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)

    assert (running.returncode, work.state()["pauseReason"]) == (130, "interrupted")


@pytest.mark.smoke
def test_every_line_of_json_is_an_object_with_event_time_and_run(work):
    done = work.doflow("run", "work", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.stderr == ""
    assert all({"event", "at", "run"} <= line.keys() for line in lines)
    names = [line["event"] for line in lines]
    assert (names[0], names[-1]) == ("run_started", "pipeline_complete")
    assert names.count("step_complete") == 3
    assert {line["run"] for line in lines} == {work.runs()[0]}


@pytest.mark.parametrize("end", ["failed", "paused", "rate limited"])
def test_the_json_of_a_run_that_stops_says_why_and_what_to_do(work, end):
    work.agent(ENDS[end][0])

    lines = [json.loads(line) for line in work.doflow("run", "work", "--json").stdout.splitlines()]

    event = {"failed": "error", "paused": "clarification", "rate limited": "rate_limited"}[end]
    told = [line for line in lines if line["event"] == event]
    assert len(told) == 1
    assert told[0]["message"] and told[0]["hint"]
    assert "pipeline_complete" not in [line["event"] for line in lines]


def test_a_second_look_in_json_tells_the_skipped_steps(work):
    work.doflow("run", "work", "--json")

    for _ in range(2):
        lines = [json.loads(line) for line in work.doflow("run", "work", "--json").stdout.splitlines()]
        assert {line["step"] for line in lines if line["event"] == "step_skipped"} >= {"one", "two", "three"}
        assert lines[-1]["event"] == "pipeline_complete"
        (work.root / ".doflow" / "stamps" / "work").unlink(missing_ok=True)


@pytest.mark.smoke("work --run=9")
@pytest.mark.parametrize("words", ["nosuch", "work:nosuch", "work --run=9", "work --nosuch=1", "work --force=nosuch"])
def test_an_error_before_a_run_exists_is_one_json_object_on_stderr(work, words):
    done = work.doflow("run", *words.split(), "--json")

    assert (done.returncode, done.stdout) == (1, "")
    told = json.loads(done.stderr)
    assert told["event"] == "error" and told["message"]
    assert not (work.root / ".doflow").exists()


def test_json_of_doits_own_reporter_is_one_document(work):
    done = work.doit("-r", "json", "work")

    told = json.loads(done.stdout)
    assert {task["name"]: task["result"] for task in told["tasks"]}["work:three"] == "success"


def test_a_rate_limit_keeps_the_time_that_the_agent_named(work):
    at = (datetime.now(UTC) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    work.agent(f"say('RESUME-AT: {at}'); stop(75)")

    done = work.doit("work")

    assert (done.returncode, work.state()["status"], work.state()["resumeAt"]) == (3, "rate-limited", at)
    assert at in done.stdout


def test_a_rate_limit_without_a_time_names_one_in_the_future(work):
    work.agent("stop(75)")

    work.doit("work")

    assert datetime.fromisoformat(work.state()["resumeAt"]) > datetime.now(UTC)


@pytest.mark.smoke
def test_a_rate_limit_uses_up_no_attempt_and_stops_every_other_call(work):
    work.flow("work", FLOW.replace("attempts: 0", "attempts: 3, backoff: 0"))
    work.commit("More attempts")
    work.agent("stop(75)")

    done = work.doit("-n", "1", "--continue", "work")

    assert (done.returncode, work.calls()) == (3, ["one"])
    assert work.state()["retries"] == []


def test_a_rate_limit_is_found_by_its_words_where_the_settings_name_them(project):
    project.settings(agent="rate_limit: {exit: 99, match: usage limit}")
    project.flow("work", FLOW)
    project.commit("A flow")
    project.agent("say('You reached your Usage Limit.'); stop(1)")

    assert (project.doit("work").returncode, project.state()["status"]) == (3, "rate-limited")


def test_an_error_beats_a_rate_limit(work):
    work.agent(
        TOGETHER
        + """
both()
if step == "one":
    stop(75)
after("one")
stop(1)
"""
    )

    done = work.doit("-n", "2", "--continue", "work")

    assert (done.returncode, work.state()["status"]) == (1, "failed")


def test_an_error_beats_a_rate_limit_that_comes_later(work):
    work.agent(
        TOGETHER
        + """
both()
if step == "one":
    after("two")
    stop(75)
stop(1)
"""
    )

    done = work.doit("-n", "2", "--continue", "work")

    assert (done.returncode, work.state()["status"]) == (1, "failed")


@pytest.mark.parametrize("first", ["one", "two"])
def test_a_rate_limit_beats_a_pause(project, first):
    project.flow("work", FLOW.replace("makes: one.md,", "makes: one.md, clarify: true,"))
    project.commit("A flow")
    project.agent(
        TOGETHER
        + f"""
both()
if step != "{first}":
    after("{first}")
stop(75) if step == "two" else make("[NEEDS CLARIFICATION: which?]")
"""
    )

    done = project.doit("-n", "2", "--continue", "work")

    assert (done.returncode, project.state()["status"]) == (3, "rate-limited")


@pytest.mark.smoke("two")
@pytest.mark.parametrize("first", ["one", "two"])
def test_an_error_beats_a_pause(project, first):
    project.flow("work", FLOW.replace("makes: one.md,", "makes: one.md, clarify: true,"))
    project.commit("A flow")
    project.agent(
        TOGETHER
        + f"""
both()
if step != "{first}":
    after("{first}")
stop(1) if step == "two" else make("[NEEDS CLARIFICATION: which?]")
"""
    )

    done = project.doit("-n", "2", "--continue", "work")

    assert (done.returncode, project.state()["status"]) == (1, "failed")


@pytest.mark.smoke
def test_an_agent_that_writes_nothing_has_failed_though_it_exits_0(work):
    work.agent("say('All done!')")

    done = work.doit("work")

    assert (done.returncode, work.state()["status"]) == (1, "failed")
    assert "one.md was not written" in done.stdout


@pytest.mark.smoke
def test_an_agent_that_cannot_be_started_has_failed_and_the_hint_names_the_setting(project):
    project.write("doflow.yaml", "agents:\n  default: {use: command, argv: [/no/such/program]}\n")
    project.flow("work", FLOW)
    project.commit("A flow")

    done = project.doit("work")

    assert (done.returncode, project.state()["status"]) == (1, "failed")
    assert "/no/such/program" in done.stdout and "agents.default.argv" in done.stdout


def test_an_agent_that_the_settings_do_not_have_is_an_error(work):
    done = work.doit("work", "--agent=nobody")

    assert done.returncode == 1
    assert "nobody" in done.stdout + done.stderr and "agents:" in done.stdout + done.stderr


def test_a_failed_step_says_what_where_and_what_to_type_next(work):
    work.agent("print('the disk is on fire', file=sys.stderr); stop(3)")

    done = work.doit("work")

    assert "work:one" in done.stdout
    assert "the disk is on fire" in done.stdout
    assert "doit work" in done.stdout or "the log is" in done.stdout


@pytest.mark.smoke
def test_a_broken_flow_is_an_error_with_file_and_line_and_writes_nothing(project):
    project.flow("odd", "flow: odd\nsteps:\n  one: {prompt: x, makess: y.md}\n")
    project.commit("Odd")

    done = project.doit("odd")

    assert done.returncode == 1
    assert "flows/odd.yaml:3" in done.stdout + done.stderr
    assert "makes" in done.stdout + done.stderr
    assert not (project.root / ".doflow").exists()


def test_broken_settings_stop_every_flow_with_file_and_line(work):
    work.write("doflow.yaml", "agents:\n  default: {use: command, argv: [true]}\nbudgett: {usd: 5}\n")

    done = work.doit("work")

    assert done.returncode == 1
    assert "doflow.yaml:3" in done.stdout + done.stderr
    assert (work.calls(), (work.root / ".doflow").exists()) == ([], False)


def test_output_into_a_closed_pipe_does_not_stop_the_run(work):
    words = " ".join(DOORS["doit"])
    subprocess.run(
        ["sh", "-c", f"PATH={work.env['PATH']}; {words} | head -n 1"],
        cwd=work.root, env=work.env, capture_output=True, timeout=60, check=True,
    )  # fmt: skip

    assert eventually(lambda: work.state().get("status") == "completed")


@pytest.mark.parametrize("end", ENDS, ids=ENDS.keys())
@pytest.mark.parametrize("door", DOORS, ids=DOORS.keys())
def test_a_reader_that_goes_away_changes_nothing_about_a_run(work, door, end):
    script, code, status = ENDS[end]
    work.agent(script)

    unread = _unread(work, *DOORS[door])

    assert (unread.returncode, unread.stderr) == (code, "")
    assert work.state()["status"] == status


@pytest.mark.smoke
def test_a_reader_of_everything_that_goes_away_changes_nothing(work):
    done = _unread(work, "doit", "work", err=subprocess.STDOUT)
    refused = _unread(work, "doit", "work", "--nosuch", err=subprocess.STDOUT)

    assert (done.returncode, refused.returncode, work.state()["status"]) == (0, 1, "completed")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_a_full_disk_behind_the_output_changes_nothing_about_a_run(work):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            ("doit", "work"), cwd=work.root, env=work.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
        asked = subprocess.run(
            ("doflow", "status"),
            cwd=work.root,
            env=work.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr, work.state()["status"]) == (0, "", "completed")
    assert (asked.returncode, asked.stderr.splitlines()[0]) == (1, "ERROR: No space left on device")


def test_a_command_whose_reader_goes_away_does_its_work_and_says_so(work):
    work.agent("make('[NEEDS CLARIFICATION: which?]')")
    work.doit("work")

    looks = [_unread(work, "doflow", *words) for words in (("status",), ("plan",), ("logs",), ("--help",))]
    refused = _unread(work, "doflow", "why", "nothing")
    answered = _unread(work, "doflow", "answer", "this")

    assert [(look.returncode, look.stderr) for look in looks] == [(0, "")] * 4
    assert refused.returncode == 1
    assert (answered.returncode, answered.stderr) == (0, "")
    assert "this" in work.run_dir().joinpath("three.md").read_text()


def test_a_follower_whose_reader_goes_away_ends(work):
    work.agent("for number in range(600): say(f'line {number}'); time.sleep(0.1)")
    running = work.start("doflow", "run", "work")
    assert eventually(work.calls)

    followed = _unread(work, "doflow", "logs", "one", "--follow")

    assert (followed.returncode, running.poll()) == (0, None)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)


def _unread(work: Project, *words: str, err: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """A program into a pipe that no one reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            words, cwd=work.root, env=work.env, stdout=writer, stderr=err, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("name", ["list", "clean", "run", "help", "forget", "auto"])
def test_a_flow_that_is_called_like_a_command_of_doits_is_refused_with_its_place_and_hides_no_other(work, name):
    work.flow(name, f"flow: {name}\nsteps:\n  one: {{prompt: Write one., makes: one.md}}\n")
    work.commit("A flow that nobody can call")
    place = f"flows/{name}.yaml:1:7: flow name '{name}' is a doit command\n  hint: choose another name"

    listed = work.doit("list")
    asked = work.doflow("run", name, "--goal=x")
    as_json = work.doflow("run", name, "--goal=x", "--json")
    done = [work.doit("work", "--next"), work.doit(), work.doit("clean", "--dry-run"), work.doit("forget", "work")]

    assert (listed.returncode, "work" in listed.stdout) == (0, True), listed.stderr
    assert f"broken: flows/{name}.yaml:1:7: " in listed.stdout
    assert (asked.returncode, place in asked.stderr, asked.stdout) == (1, True, ""), asked.stderr
    assert (as_json.returncode, place.partition("\n")[0] in json.loads(as_json.stderr)["message"]) == (1, True)
    assert [found.returncode for found in done] == [0] * 4, [found.stderr for found in done]


@pytest.mark.parametrize("word", ["agent", "fallback"])
def test_an_agent_that_is_not_there_is_refused_with_its_place(work, word):
    work.flow("lost", f"flow: lost\nsteps:\n  one: {{prompt: One., makes: one.md, {word}: nobody}}\n")
    work.commit("A flow")

    done = work.doit("lost", "--goal=x")

    column = work.read("flows/lost.yaml").splitlines()[2].index("nobody") + 1
    assert (done.returncode, f"flows/lost.yaml:3:{column}: " in done.stdout + done.stderr) == (1, True), done.stdout


def test_two_flows_that_make_one_file_hinder_no_command_of_doits(work):
    for name in ("left", "right"):
        work.flow(name, f"flow: {name}\nsteps:\n  one: {{prompt: One., makes: /one.md}}\n")
    work.commit("Two flows")

    done = [
        work.doit("clean", "--dry-run"),
        work.doit("list", "--all"),
        work.doit("left", "--goal=x"),
        work.doit("info", "right:one"),
    ]

    assert [found.returncode for found in done[:3]] == [0] * 3, [found.stderr for found in done]
    assert (done[3].returncode in (0, 1), "common target" in done[3].stdout + done[3].stderr) == (True, False)
