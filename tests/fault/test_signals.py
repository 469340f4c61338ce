"""Interrupted: exit 130, nothing left running, the state says so, and the same command goes on."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time

import pytest
from tests.support import crash
from tests.support.project import PROGRAMS, Project, eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="follows process trees in /proc")

FLOW = """\
flow: calm
about: Two steps that can run side by side, and one after them.
params: {goal: {about: What to build, required: true}}
steps:
  left:  {prompt: Go left., reads: [input.md], makes: left.md, after: []}
  right: {prompt: Go right., reads: [input.md], makes: right.md, after: []}
  both:  {prompt: Join., reads: [left.md, right.md], makes: both.md, after: [left, right]}
"""

# An agent that does not end: with a daemon of its own session, deaf to all but KILL, and half an artifact.
STUCK = """
import signal
if not (outside / "go").exists() and step != "left":
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        (outside / "daemon").write_text(str(os.getpid()))
        time.sleep(300)
    make("half of it")
    if (outside / "stray").exists():
        put("litter.txt", "where it may not write")
    while not (outside / "daemon").exists():
        time.sleep(0.005)
    (outside / "stuck").touch()
    time.sleep(300)
usual()
"""


@pytest.fixture
def calm(project: Project) -> Project:
    project.flow("calm", FLOW)
    project.agent(STUCK)
    project.commit()
    project.write("mine.txt", "untracked\n")
    return project


def interrupted(project: Project, code: int, text: str) -> None:
    """What must hold after an interruption, and that the run then goes on to its end."""
    assert (code, "Traceback" in text) == (130, False), text
    assert crash.none_left(project.home) == {}
    state = project.state()
    assert (state["status"], state["pauseReason"]) == ("paused", "interrupted")
    assert "litter.txt" not in project.tree()
    assert "half of it" not in {data.decode() for data in project.tree().values()}
    assert project.read("mine.txt") == "untracked\n"
    done = state["completed"]
    before = project.calls()
    (project.outside / "go").touch()
    again = project.doit("calm", "--goal=Keep calm")
    assert again.returncode == 0, again.stdout + again.stderr
    assert set(project.calls()[len(before) :]) == {"left", "right", "both"} - set(done)
    assert project.state()["status"] == "completed"


@pytest.mark.smoke("2-side by side")
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one by one", "side by side"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything_and_the_same_command_goes_on(calm, number, workers):
    running = calm.start("doit", *workers, "calm", "--goal=Keep calm")
    assert eventually((calm.outside / "stuck").exists)

    running.send_signal(number)
    out, err = running.communicate(timeout=60)

    interrupted(calm, running.returncode, out + err)
    assert "doit calm" in err


@pytest.mark.smoke
def test_what_an_interrupted_agent_wrote_elsewhere_is_put_back(calm):
    (calm.outside / "stray").touch()
    running = calm.start("doit", "calm", "--goal=Keep calm")
    assert eventually((calm.outside / "stuck").exists)

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    interrupted(calm, running.returncode, out + err)


def test_a_second_signal_while_the_first_is_obeyed_changes_nothing(calm):
    running = calm.start("doit", "calm", "--goal=Keep calm")
    assert eventually((calm.outside / "stuck").exists)

    running.send_signal(signal.SIGINT)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)

    interrupted(calm, running.returncode, out + err)


def test_a_key_pressed_in_a_terminal_interrupts_the_run(calm):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(calm.root)
        os.execve(PROGRAMS / "doit", ["doit", "calm", "--goal=Keep calm"], calm.env | {"TERM": "xterm"})
    assert eventually((calm.outside / "stuck").exists)

    os.write(terminal, b"\x03")
    text = read(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    interrupted(calm, code, text)


def test_a_terminal_that_is_closed_interrupts_the_run(calm):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(calm.root)
        os.execve(PROGRAMS / "doit", ["doit", "calm", "--goal=Keep calm"], calm.env | {"TERM": "xterm"})
    assert eventually((calm.outside / "stuck").exists)

    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    interrupted(calm, code, "")


def test_an_interruption_does_not_wait_for_the_next_attempt(project):
    project.flow("calm", FLOW)
    project.settings("retry: {enabled: true, max_retries: 3, backoff_seconds: 60}\n")
    project.agent('if not (outside / "go").exists(): stop(1)\nusual()')
    project.commit()
    project.write("mine.txt", "untracked\n")
    running = project.start("doit", "calm", "--goal=Keep calm")
    event_logs = ".doflow/runs/*/events.jsonl"
    assert eventually(lambda: any("retry" in path.read_text() for path in project.root.glob(event_logs)))

    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert time.monotonic() - started < 10
    interrupted(project, running.returncode, out + err)


def test_an_interrupted_shell_step_is_run_again(project):
    stuck = project.outside / "stuck"
    go = project.outside / "go"
    words = f"test -e {go} || {{ touch {stuck}; sleep 300; }}"
    project.flow("calm", f"flow: calm\nabout: One.\nsteps:\n  wait: {{kind: shell, run: [sh, -c, '{words}']}}\n")
    project.commit()
    running = project.start("doit", "calm")
    assert eventually(stuck.exists)

    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)

    assert (running.returncode, crash.none_left(project.home)) == (130, {})
    assert (project.state()["status"], project.state()["pauseReason"]) == ("paused", "interrupted")
    go.touch()
    assert project.doit("calm").returncode == 0
    assert project.state()["completed"] == ["wait"]


def test_a_run_that_is_killed_leaves_no_agent_behind(calm):
    running = calm.start("doit", "calm", "--goal=Keep calm")
    assert eventually((calm.outside / "stuck").exists)

    running.kill()
    running.communicate(timeout=60)

    assert crash.none_left(calm.home) == {}
    (calm.outside / "go").touch()
    again = calm.doit("calm", "--goal=Keep calm")
    assert (again.returncode, calm.calls()) == (0, ["left", "right", "right", "both"]), again.stdout + again.stderr
    assert b"half of it" not in calm.tree().values()


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_an_interruption_at_the_very_start_leaves_a_project_that_can_run(project, moment):
    project.flow("calm", FLOW)
    project.commit()
    running = project.start("doit", "calm", "--goal=Keep calm")
    time.sleep(moment)

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    early = running.returncode == 1 and "Failed to import the site module" in err  # Python itself was not up yet
    assert early or running.returncode in (130, -signal.SIGINT, 0), out + err  # 0: it was done before; -2: nor doflow
    assert project.doit("calm", "--goal=Keep calm").returncode == 0
    assert sorted(set(project.calls())) == ["both", "left", "right"]
    assert crash.none_left(project.home) == {}


def read(terminal: int) -> str:
    """All that a terminal shows until the program on it ends."""
    data = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    return data.decode("utf-8", "replace")
